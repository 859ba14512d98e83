"""`mas bench learner` as a user meets it: exit codes, mistakes, the files that it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from matplotlib.figure import Figure
from mini import MINI, mini

from benchmarks.learner.names import OURS, PADDED, ROWS, TRL
from benchmarks.learner.options import DEFAULT_WORKLOADS, LearnerBench
from benchmarks.learner.workload import load_workload
from benchmarks.machine import describe
from benchmarks.plot import _draw_memory, _draw_speed, write_plot
from benchmarks.result import Result, Row, Target
from benchmarks.rounds import Timing
from mas.core.errors import RunDirectoryError

Mas = Callable[..., Any]

SWEEP = mini(name="more", sweep={"over": "adapters", "values": [1, 4]})


def made(goal: float = 1.0) -> Result:
    """A workload with two rows that ran and one that did not, and a sweep."""
    slow, fast = Timing((100, 100, 100), (4.0, 2.0, 1.0)), Timing((100, 100, 100), (2.0, 1.0, 1.0))
    rows = (
        Row.measured(ROWS[OURS], "mini", 1000, fast, slow, {"peak_mib": 12.0}),
        Row.measured(ROWS[PADDED], "mini", 1000, slow, slow, {"peak_mib": 345.0}),
        Row(name=ROWS[TRL], size="mini", parameters=1000, note="not installed"),
        Row.measured("mas, 1 adapters", "more", 1000, fast, fast, {"peak_mib": 5.0}),
        Row.measured("mas, 4 adapters", "more", 1000, slow, fast, {"peak_mib": 6.0}),
    )
    return Result(
        bench="learner",
        machine=describe(load_before=0.0, threads=1, device="cpu"),
        workload={"seed": 0} | {one.name: one.model_dump(mode="json") for one in (mini(), SWEEP)},
        rows=rows,
        targets=(Target.at_least("speed", 1.0, goal),),
        notes=("peak memory: not here",),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[LearnerBench]:
    """What the benchmark was asked; it finds 1.0 where `--seed` is the goal."""
    seen: list[LearnerBench] = []

    async def found(options: LearnerBench, tell: Callable[[str], None]) -> Result:
        seen.append(options)
        return made(float(options.seed))

    monkeypatch.setattr("benchmarks.learner.run.bench_learner", found)
    return seen


def test_the_exit_code_says_whether_the_targets_are_met(asked: list[LearnerBench], mas: Mas) -> None:
    assert mas("bench", "learner", "--seed", "1").code == 0
    missed = mas("bench", "learner", "--seed", "2")
    assert (missed.code, missed.err) == (1, "")
    assert "peak memory: not here" in missed.out


def test_a_missed_target_still_writes_both_files(asked: list[LearnerBench], mas: Mas, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "found.json"), "--plot", str(tmp_path / "found.png"))
    assert mas("bench", "learner", "--seed", "2", *files).code == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["targets"][0]["met"] is False
    assert found["workload"]["more"]["sweep"] == {"over": "adapters", "values": [1, 4]}
    assert found["notes"] == ["peak memory: not here"]
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_options_arrive(asked: list[LearnerBench], mas: Mas, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(MINI))
    mas("bench", "learner")
    words = ("--workload", "cpu_1m", "--workload", str(tmp_path / "own.yaml"), "--repeats", "2", "--threads", "1")
    mas("bench", "learner", *words, "--without", "trl", "--without", "floor", "--seed", "3")
    assert asked[0] == LearnerBench(
        workloads=tuple(load_workload(name) for name in DEFAULT_WORKLOADS), repeats=5, seed=0, threads=2
    )
    assert asked[1] == LearnerBench(
        workloads=(load_workload("cpu_1m"), mini()),
        repeats=2,
        seed=3,
        without=frozenset({"trl", "floor"}),
        threads=1,
    )
    assert asked[0].rows == ("mas", "padded", "packed", "trl", "trl_checkpointed", "floor")
    assert asked[1].rows == ("mas", "padded", "packed")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--workload", "cpu_11m"), "--workload cpu_11m: no such workload. Did you mean 'cpu_1m' or 'cpu_10m'?"),
        (("--workload", "cpu_1m", "--workload", "cpu_1m"), "two workloads are called 'cpu_1m'"),
        (("--without", "padded"), "--without padded: nothing to leave out."),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
        (("--plot", "none/found.svg"), "none/found.svg cannot be written"),
        (("--plot", "found.pdf"), "--plot found.pdf: a picture ends with .svg or .png"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    asked: list[LearnerBench],
    words: tuple[str, ...],
    text: str,
    mas: Mas,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("bench", "learner", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert asked == []


def test_without_peft_the_line_that_installs_it_is_named_unless_only_sweeps_run(
    asked: list[LearnerBench], mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.learner.options.find_spec", lambda name: None)
    ran = mas("bench", "learner")
    assert ran.code == 2
    assert "pip install 'mas[bench]'" in ran.err
    assert mas("bench", "learner", "--workload", "tokens").code == 0


def test_a_pretrained_model_that_is_not_there_is_not_measured_and_says_why(
    mas: Mas, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MAS_CACHE", str(tmp_path))
    files = ("--json", str(tmp_path / "found.json"), "--plot", str(tmp_path / "found.svg"))
    assert mas("bench", "learner", "--workload", "smollm2", *files).code == 0
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [row["name"] for row in rows] == list(ROWS.values())
    why = "not measured: the model is not in the cache; `mas base smollm2` puts it there"
    assert {(row["median"], row["note"]) for row in rows} == {(None, why)}


def test_impossible_numbers_are_usage_errors(mas: Mas) -> None:
    assert mas("bench", "learner", "--repeats", "0").code == 2
    assert mas("bench", "learner", "--threads", "0").code == 2


def test_the_picture_names_who_ran_and_the_points_of_a_sweep(tmp_path: Path) -> None:
    write_plot(tmp_path / "a.svg", made())
    write_plot(tmp_path / "b.svg", made())
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    # Medians of 100 tokens in (2, 1, 1) and (4, 2, 1) seconds: 100 and 50 a second.
    for part in (
        ROWS[PADDED],
        "mini: tokens per second",
        "more: MiB of a step",
        "adapters",
        ">100<",
        ">50<",
        ">12<",
        ">345<",
    ):
        assert part in text
    assert ROWS[TRL] not in text


def test_the_highest_point_of_a_sweep_is_inside_its_chart() -> None:
    row = Row(name="8", size="m", parameters=0, median=100.0, min=90.0, max=130.0, measures={"peak_mib": 2000.0})
    rows = [row, msgspec.structs.replace(row, name="16", measures={"peak_mib": 1999.0})]
    workload = {"name": "adapters", "sweep": {"values": [8, 16], "over": "adapters"}}
    for draw, highest in ((_draw_speed, 130.0), (_draw_memory, 2000.0)):
        axes = Figure().subplots()
        draw(axes, rows, workload)
        assert axes.get_ylim() == pytest.approx((0.0, 1.08 * highest))


def test_a_folder_that_went_meanwhile_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file"):
        write_plot(tmp_path / "gone" / "found.svg", made())
