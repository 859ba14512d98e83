"""Rows, targets, the JSON file and the tables."""

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.machine import Machine, describe
from benchmarks.result import Result, Row, Target, check_writable, write_result
from benchmarks.rounds import Timing
from benchmarks.table import print_result
from mas.core.errors import RunDirectoryError


def made(*targets: Target) -> Result:
    """Two competitors, one of them absent."""
    slow, fast = Timing((100, 100, 100), (4.0, 2.0, 1.0)), Timing((100, 100, 100), (2.0, 1.0, 1.0))
    rows = (
        Row.measured("fast", "1M", 1234567, fast, slow, {"gap": 2e-6, "publish_ms": 4321.0}),
        Row(name="other", size="1M", parameters=1234567, note="not installed"),
    )
    return Result(
        bench="serving",
        machine=describe(load_before=0.5, threads=2, device="cpu"),
        workload={"requests": 4, "seed": 0},
        rows=rows,
        targets=targets,
    )


MET = Target.at_least("quick", 2.0, 1.5)
MISSED = Target.at_least("quick", 1.4, 1.5)
UNMEASURED = Target.at_least("quick beside TRL", None, 1.5, "TRL: not installed")


def test_a_row_holds_every_round_and_their_median_least_and_most() -> None:
    row = made().rows[0]
    assert row.repeats == (50.0, 100.0, 100.0)
    assert (row.median, row.min, row.max, row.tokens, row.seconds) == (100.0, 50.0, 100.0, 100, (2.0, 1.0, 1.0))
    # Its rates / the slow one's (25, 50, 100): 2, 2, 1.
    assert row.ratio == 2.0


@pytest.mark.parametrize(
    ("target", "is_met"),
    [
        (Target.at_least("x", 1.5, 1.5), True),
        (Target.at_least("x", 1.49, 1.5), False),
        (Target.at_most("x", 1e-5, 1e-5), True),
        (Target.at_most("x", 2e-5, 1e-5), False),
        (Target.at_least("x", float("nan"), 1.5), False),
        (Target.at_most("x", float("nan"), 1.5), False),
    ],
)
def test_a_target_is_met_on_its_side_of_the_goal(target: Target, is_met: bool) -> None:
    assert target.met is is_met


def test_the_exit_code_is_1_where_one_target_is_missed() -> None:
    assert made().exit_code == made(MET).exit_code == 0
    assert made(MET, MISSED).exit_code == 1
    assert made(MET, UNMEASURED).exit_code == 0


def test_the_file_holds_machine_rows_and_targets(tmp_path: Path) -> None:
    write_result(tmp_path / "found.json", made(MET, MISSED))
    found = json.loads((tmp_path / "found.json").read_text())
    assert {"machine", "rows", "targets"} <= set(found)
    assert set(found["machine"]["versions"]) == {"python", "torch", "transformers", "peft", "trl", "vllm"}
    assert set(found["machine"]) == set(Machine.__struct_fields__)
    assert [row["name"] for row in found["rows"]] == ["fast", "other"]
    assert found["rows"][0]["repeats"] == [50.0, 100.0, 100.0]
    assert (found["rows"][1]["median"], found["rows"][1]["note"]) == (None, "not installed")
    missed = {"name": "quick", "value": 1.4, "goal": 1.5, "bound": "at least", "met": False, "note": ""}
    assert found["targets"][1] == missed
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_the_machine_says_what_it_is() -> None:
    machine = made().machine
    assert machine.cpu
    assert machine.cores >= 1
    assert machine.memory_gib > 0
    assert machine.versions["torch"]
    assert machine.date.endswith("+00:00")


@pytest.mark.parametrize("name", ["none/found.json", "."])
def test_a_file_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirectoryError, match=r"cannot be written|is a directory"):
        check_writable(tmp_path / name)


def test_a_folder_that_went_meanwhile_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file"):
        write_result(tmp_path / "gone" / "found.json", made())


def test_the_tables_show_ratios_what_is_absent_and_which_targets_are_missed() -> None:
    console = Console(width=200, record=True, file=None, quiet=False)
    with console.capture() as shown:
        print_result(console, made(MET, MISSED, UNMEASURED), reference="slow")
    text = shown.get()
    for part in ("1M (1,234,567)", "50 – 100", "/ slow", "2.00", "not installed", "2.0e-06", "4,321", "at least 1.500"):
        assert part in text
    verdicts = [line.split("│")[-2].strip() for line in text.splitlines() if "quick" in line]
    assert verdicts == ["yes", "no", "TRL: not installed"]
    assert "not measured" in next(line for line in text.splitlines() if "TRL" in line)
