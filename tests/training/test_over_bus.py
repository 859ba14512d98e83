"""`mas train --bus`: the roles are processes of `mas agent` behind a mosquitto with the team's rights."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from brokers import broker, needs_mosquitto, read_env
from conftest import BaseFor, Ran
from distant import agents

from mas.observe.metrics import read_metrics

pytestmark = needs_mosquitto
Mas = Callable[..., Ran]
SHORT = (
    "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0", "train.checkpoint_every=1",
    "algorithm.sampler.candidates=3",
)  # fmt: skip


def adapters(run: Path) -> dict[str, bytes]:
    folder = run / "adapters"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def measured(run: Path) -> list[dict[str, Any]]:
    """All metrics but how long things took."""
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_training_over_processes_and_in_one_ends_with_the_same_bits(
    tmp_path: Path,
    mas: Mas,
    small_overrides: tuple[str, ...],
    base_for: BaseFor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base_for("relay")
    # Alone in its batch, a completion does not depend on what comes at the same time, not even by rounding.
    playing = ("scenario=relay", *small_overrides, "model.max_batch=1")
    words = (*playing, *SHORT)
    here, there = tmp_path / "here", tmp_path / "there"
    assert mas("train", *words, "train.steps=3", f"run_dir={here}").code == 0
    with broker("relay", tmp_path / "bus") as running, agents(running, playing) as team:
        team.start("planner")
        team.start("executor")
        for name, value in read_env(running.directory / "passwords" / "coordinator.env").items():
            monkeypatch.setenv(name, value)
        bus = ("--bus", os.environ["MAS_BUS_URL"])
        for steps in (2, 3):  # the second command goes on from the checkpoint of the first
            ran = mas("train", *words, f"train.steps={steps}", f"run_dir={there}", *bus)
            assert ran.code == 0, ran.err
    assert adapters(there) == adapters(here)
    same = [line for line in measured(here) if "reward" in line]
    assert [line for line in measured(there) if "reward" in line] == same
    assert [line["adapters"]["planner"]["behaviour_gap"] < 1e-4 for line in same] == [True] * 3
