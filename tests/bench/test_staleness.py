"""`mas bench staleness`: what is trained, what is measured of it, and what cannot be asked."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.result import Result
from benchmarks.staleness import run
from benchmarks.staleness.options import CASES, StalenessBench
from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.runs.resolve import resolve_training

pytestmark = pytest.mark.nightly

Mas = Callable[..., Any]
WORDS = ("train.steps=3", "train.tasks_per_step=2", "algorithm.sampler.candidates=2", "train.eval_tasks=2")


@pytest.fixture(scope="module")
def result() -> Result:
    options = StalenessBench(cases=("relay",), staleness=(0, 2), repeats=1, words=WORDS)
    return asyncio.run(run.bench_staleness(options, lambda text: None))


def test_every_staleness_is_a_row_with_the_same_steps(result: Result) -> None:
    assert [(row.size, row.name, len(row.repeats)) for row in result.rows] == [
        ("relay", "staleness=0", 1),
        ("relay", "staleness=2", 1),
    ]
    plain, ahead = result.rows
    assert plain.ratio == 1
    assert ahead.tokens == pytest.approx(plain.tokens, rel=0.2)
    for row in result.rows:
        assert set(row.measures) == {run.WAITS, run.IDLE, run.SUCCESS, run.WALL, "step_s", "success_min"}
        assert 0 <= row.measures[run.WAITS] <= 1
        assert 0 <= row.measures[run.IDLE] <= 1
        assert 3 * row.measures["step_s"] <= row.measures[run.WALL] == row.seconds[0]
    assert [note.partition(": success 0.9 ")[::2] for note in result.notes] == [
        ("relay, staleness=0, seed 1", "not reached"),
        ("relay, staleness=2, seed 1", "not reached"),
    ]
    assert plain.measures[run.WAITS] + plain.measures[run.IDLE] == pytest.approx(1), "who learns does not sample"


def test_a_worker_can_play(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any success is the goal."""
    monkeypatch.setattr(run, "GOAL", 0.0)
    words = (*WORDS, "cluster.workers=1", "cluster.start_s=600")
    options = StalenessBench(cases=("relay",), staleness=(0, 1), repeats=1, words=words)
    result = asyncio.run(run.bench_staleness(options, lambda text: None))
    assert [row.name for row in result.rows] == ["staleness=0", "staleness=1"]
    for row, note in zip(result.rows, result.notes, strict=True):
        assert f"{row.name}, seed 1: success 0.0 in step 3, after {row.tokens:,} tokens and " in note


@pytest.mark.parametrize("case", CASES)
def test_every_case_can_be_trained_as_it_says(case: str) -> None:
    setup = resolve_training(load_config(CASES[case]))
    assert setup.train.steps > 0
    assert setup.train.staleness == 0


def test_what_cannot_be_asked_is_said(mas: Mas) -> None:
    with pytest.raises(ConfigError, match=r"--case relais: there is no such case.*'relay'"):
        StalenessBench(cases=("relais",))
    for wrong in ((0, 0), (-1,), ()):
        with pytest.raises(ConfigError, match="give different numbers from 0 on"):
            StalenessBench(staleness=wrong)
    assert mas("bench", "staleness", "--case", "relais").code == 2
