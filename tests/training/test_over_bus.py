"""`mas train --bus`: the roles are processes of `mas agent` behind a mosquitto with the team's rights."""

import io
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from brokers import broker, needs_mosquitto, read_env
from conftest import BaseFor, Ran
from distant import CONTEXT, Fate, agents
from rich.console import Console

from mas.bus.mqtt_options import MqttOptions
from mas.config.load import load_config
from mas.core.records import Episode
from mas.observe.metrics import read_metrics
from mas.scenarios import build_scenario
from mas.training.over_bus import over_bus
from mas.training.run import train_in_directory
from mas.training.sampling.ledger import Ledger
from mas.training.watch import RunWatcher

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


def after(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, call: Callable[..., object]) -> None:
    """Call with the same arguments after each call of a method."""
    first = getattr(owner, name)

    def both(self: Any, *args: Any) -> Any:
        found = first(self, *args)
        call(*args)
        return found

    monkeypatch.setattr(owner, name, both)


def test_killed_agents_leave_every_episode_accounted_for(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    base_for("relay")
    run, notes = tmp_path / "run", []
    playing = ("scenario=relay", *small_overrides)
    config = load_config([*playing, *SHORT, "train.steps=5", f"run_dir='{run}'"])
    # Whose turn it is to die in which step, and the event that lets it happen; `decided` is the first episode's end.
    first, second, third, decided, let_third_in, let_fourth_in = (CONTEXT.Event() for _ in range(6))

    def on_step(step: int, metrics: Any, episodes: Sequence[Episode]) -> None:
        if step <= 3:
            (first, second, third)[step - 1].set()

    def on_close(*args: Any) -> None:
        if third.is_set():
            decided.set()

    with broker("relay", tmp_path / "bus") as running, agents(running, playing) as team:
        team.start("planner")
        one = team.start("executor", fate=Fate(first))  # step 2: another one stands beside it
        two = team.start("executor", fate=Fate(second))  # step 3: another one comes when it is dead
        fate = Fate(third, candidates=3, spared=1, until=decided)  # step 4: nobody comes in time
        three = team.start("executor", let_in=let_third_in, fate=fate)
        team.start("executor", let_in=let_fourth_in)
        team.wait()
        after(monkeypatch, RunWatcher, "on_step", on_step)
        after(monkeypatch, Ledger, "close", on_close)
        after(monkeypatch, Ledger, "failed", lambda error: let_fourth_in.set())
        Thread(target=lambda: (two.join(), let_third_in.set()), daemon=True).start()
        for name, value in read_env(running.directory / "passwords" / "coordinator.env").items():
            monkeypatch.setenv(name, value)
        url, options = os.environ["MAS_BUS_URL"], MqttOptions(absent_s=1.0)
        scenario = build_scenario(config.scenario)
        opening = over_bus(config, scenario, url, note=notes.append, wait_s=4.0, options=options)
        outcome = train_in_directory(config, scenario, console=Console(file=io.StringIO()), opening=opening)
        assert [process.exitcode for process in (one, two, three)] == [-signal.SIGKILL] * 3
    print(notes)
    print(outcome.reason)
    for line in measured(run):
        print(line)
    print((run / "samples.jsonl").read_text())
