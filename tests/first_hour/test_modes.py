"""Quiet and JSON modes of commands that programs call, filters of lists, and exit codes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas import cli
from mas.core.errors import ConfigError, EngineLost, Halted, MasError, TrainingError
from mas.observe.significance import wilson

Mas = Callable[..., Any]
SHORT = (
    "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2",
)  # fmt: skip


@pytest.mark.slow
def test_a_run_from_training_to_report_for_a_program(
    mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ("train", "scenario=relay", *SHORT, *small_overrides, f"run_dir={run}")
    trained = mas(*words, "--quiet", "--json", str(tmp_path / "trained.json"))
    assert (trained.code, trained.out, trained.err) == (0, "", "")
    result = json.loads((tmp_path / "trained.json").read_text())
    assert (result["run_dir"], result["steps"]) == (str(run), 1)
    evaluated = {(one["step"], one["kind"]) for one in result["evaluations"]}
    assert evaluated == {(step, kind) for step in (0, 1) for kind in ("greedy", "sampled")}
    again = mas(*words, "--json", "-")
    assert json.loads(again.out)["steps"] == 1
    found = json.loads(mas("eval", str(run), "--tasks", "3", "--json", "-").out)
    assert (found["scenario"], found["tasks"], found["kind"]) == ("relay", 3, "greedy")
    assert set(found["teams"]) == {"untrained", "trained"}
    team = found["teams"]["trained"]
    interval = wilson(team["success"] * found["tasks"], found["tasks"])
    assert team["interval"] == [interval.low, interval.high]
    assert 0 <= interval.low <= team["success"] <= interval.high <= 1
    quiet = mas("eval", str(run), "--tasks", "3", "-q")
    assert "evaluating" not in quiet.out
    assert "trained" in quiet.out
    assert json.loads(mas("report", str(run), "--json", "-").out)["report"] == str(run / "report.html")
    assert mas("report", str(run), "-q").out == ""


@pytest.mark.slow
def test_the_doctor_for_a_program(mas: Mas, small_overrides: tuple[str, ...]) -> None:
    models = [word for word in small_overrides if word.startswith("model.")]
    ran = mas("doctor", "scenario=relay", *models, "--json", "-")
    found = json.loads(ran.out)
    assert ran.code == (0 if found["works"] else 1)
    assert {"name", "text", "is_fatal"} == set(found["findings"][0])


def test_the_algorithms_of_a_scenario_for_a_program(mas: Mas) -> None:
    listed = json.loads(mas("algorithms", "--scenario", "refine", "--json", "-").out)
    assert {one["scenario"] for one in listed} == {"", "refine"}
    (one,) = json.loads(mas("algorithms", "gigpo", "--json", "-").out)
    assert one["name"] == "gigpo"


def test_lists_fit_a_terminal_of_80_columns(mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in (("algorithms",), ("scenarios", "--find", "communication")):
        lines = mas(*words).out.splitlines()
        assert max(map(len, lines)) <= 80
        names = [line.split(" ")[0] for line in lines[1:] if line and not line.startswith(" ")]
        assert all(" " not in name for name in names)
    # two lines of description at most stand beside most names: a column of ten letters would need twenty
    assert len(mas("algorithms").out.splitlines()) < 260


def test_words_choose_from_a_list(mas: Mas) -> None:
    shown = mas("algorithms", "--find", "tree", "--find", "uncertain").out
    assert "at2po" in shown
    assert "dr_grpo" not in shown
    shown = mas("scenarios", "--find", "sudoku").out
    assert "sudoku" in shown
    assert "sokoban" not in shown


def test_scenarios_are_listed_by_the_model_that_they_suit(mas: Mas) -> None:
    tiny = {one["profile"]["name"] for one in json.loads(mas("scenarios", "--model", "tiny", "--json", "-").out)}
    words = {one["profile"]["name"] for one in json.loads(mas("scenarios", "--model", "words", "--json", "-").out)}
    assert "relay" in tiny
    assert "shop" in words
    assert not tiny & words


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("algorithms", "--find", "no such word"), "take fewer or other words"),
        (("scenarios", "--find", "no such word"), "take fewer or other words"),
        (("algorithms", "gigpo", "--find", "tree"), "leave one of them out"),
        (("scenarios", "relay", "--model", "tiny"), "leave one of them out"),
        (("algorithms", "--json", "no/such/file"), "is no directory"),
    ],
)
def test_wrong_input_is_exit_code_2(words: tuple[str, ...], text: str, mas: Mas) -> None:
    ran = mas(*words)
    assert ran.code == 2
    assert text in ran.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("a wrong key"), 2),
        (TrainingError("no episode could be played"), 1),
        (EngineLost("the server is gone"), 1),
        (Halted("drained"), 130),
    ],
)
def test_the_exit_code_says_whose_fault_it_was(error: MasError, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(prog_name: str) -> None:
        raise error

    monkeypatch.setattr(cli, "app", failing)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code


def test_an_interrupt_is_exit_code_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(name: str, place: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_load", interrupted)
    monkeypatch.setattr(sys, "argv", ["mas", "graph", "relay"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
