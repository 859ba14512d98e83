"""`mas bench bus` as a user meets it: exit codes, mistakes, the files that it writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.bus.options import WORKLOADS, BusBench
from benchmarks.machine import describe
from benchmarks.plot import write_bars
from benchmarks.result import Result, Row, Target
from benchmarks.rounds import Timing
from mas.core.errors import RunDirectoryError

Mas = Callable[..., Any]


def made(goal: float = 1.0) -> Result:
    """One workload with a row that ran and one that did not."""
    fast = Timing((100, 100), (2.0, 1.0), (0.002, 0.004))
    rows = (
        Row.measured("ours", "request", 0, fast, fast, {"cpu_us": fast.cpu_us}, "answers"),
        Row(name="theirs", size="request", parameters=0, note="not installed", unit="answers"),
    )
    return Result(
        bench="bus",
        machine=describe(load_before=0.0, threads=0, device="cpu", packages=("langgraph",)),
        workload={},
        rows=rows,
        targets=(Target.at_least("speed", 1.0, goal),),
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[BusBench]:
    """What the benchmark was asked; it finds 1.0 where `--repeats` is the goal."""
    seen: list[BusBench] = []

    async def found(options: BusBench, tell: Callable[[str], None]) -> Result:
        seen.append(options)
        return made(float(options.repeats))

    monkeypatch.setattr("benchmarks.bus.run.bench_bus", found)
    return seen


def test_the_exit_code_says_whether_the_targets_are_met(asked: list[BusBench], mas: Mas) -> None:
    assert mas("bench", "bus", "--repeats", "1").code == 0
    missed = mas("bench", "bus", "--repeats", "2")
    assert (missed.code, missed.err) == (1, "")


def test_the_table_counts_what_the_workload_is_made_of_and_names_no_threads(asked: list[BusBench], mas: Mas) -> None:
    out = mas("bench", "bus", "--repeats", "1").out
    for part in ("answers per second", "request (answers)", "not installed", "cpu us"):
        assert part in out
    assert "threads" not in out


def test_a_missed_target_still_writes_both_files(asked: list[BusBench], mas: Mas, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "found.json"), "--plot", str(tmp_path / "found.png"))
    assert mas("bench", "bus", "--repeats", "2", *files).code == 1
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["targets"][0]["met"] is False
    assert found["rows"][0]["unit"] == "answers"
    assert set(found["machine"]["versions"]) == {"python", "langgraph"}
    # 20 and 40 µs of CPU time a unit.
    assert found["rows"][0]["measures"]["cpu_us"] == pytest.approx(30.0)
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")


def test_options_arrive(asked: list[BusBench], mas: Mas) -> None:
    mas("bench", "bus")
    words = ("--workload", "graph", "--workload", "request", "--workload", "graph", "--repeats", "3")
    mas("bench", "bus", *words, "--without", "autogen")
    assert asked[0] == BusBench(workloads=tuple(WORKLOADS), repeats=5)
    assert asked[1] == BusBench(workloads=("graph", "request"), repeats=3, without=frozenset({"autogen"}))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            ("--workload", "requests"),
            "--workload requests: no such workload. Did you mean 'request' or 'mqtt_request'?",
        ),
        (("--without", "autogn"), "--without autogn: nothing to leave out. Did you mean 'autogen'?"),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
        (("--plot", "found.pdf"), "--plot found.pdf: a picture ends with .svg or .png"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    asked: list[BusBench],
    words: tuple[str, ...],
    text: str,
    mas: Mas,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = mas("bench", "bus", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert asked == []


def test_the_picture_shows_speed_and_cost_of_who_ran(tmp_path: Path) -> None:
    write_bars(tmp_path / "a.svg", made(), "cpu_us")
    write_bars(tmp_path / "b.svg", made(), "cpu_us")
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    # Medians of 100 units in 2 and 1 seconds, and of 20 and 40 µs.
    for part in ("request: answers per second", "request: cpu us", ">75<", ">30<", ">ours<"):
        assert part in text
    assert "theirs" not in text
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file"):
        write_bars(tmp_path / "gone" / "a.svg", made(), "cpu_us")
