"""`mas train --bus`: the roles are processes of `mas agent` behind a mosquitto with the team's rights."""

import io
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import safetensors.torch
from brokers import broker, needs_mosquitto, read_env
from conftest import BaseFor, Ran
from distant import Agents, Fate, agents
from forked import FORKED
from mosquitto import running_mosquitto
from rich.console import Console

from mas.bus.mqtt.options import MqttOptions
from mas.config.load import load_config
from mas.observe.metrics import read_metrics
from mas.runs.resolve import resolve
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.training.over_bus import over_bus
from mas.training.sampling.sampler import EpisodeRecorder
from mas.training.trainer import TrainingOutcome
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


@pytest.mark.nightly(of=16)
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
    here, there, payloads = tmp_path / "here", tmp_path / "there", tmp_path / "payloads"
    assert mas("train", *words, "train.steps=3", f"run_dir={here}").code == 0
    store = ("--store", payloads.as_uri())
    small = MqttOptions(inline_bytes=4096)  # adapters travel by reference, questions do not
    monkeypatch.setattr("mas.training.over_bus.MqttOptions", lambda: small)
    with broker("relay", tmp_path / "bus") as running, agents(running, (*playing, *store)) as team:
        team.start("planner")
        team.start("executor")
        for name, value in read_env(running.directory / "passwords" / "coordinator.env").items():
            monkeypatch.setenv(name, value)
        bus = ("--bus", os.environ["MAS_BUS_URL"])
        for steps in (2, 3):  # the second command goes on from the checkpoint of the first
            ran = mas("train", *words, f"train.steps={steps}", f"run_dir={there}", *bus, *store)
            assert ran.code == 0, ran.err
    # Two roles, untrained and after each of three steps; what is published again is the same file.
    assert len([path for path in payloads.rglob("*") if path.is_file()]) == 8
    assert adapters(there) == adapters(here)
    same = [line for line in measured(here) if "reward" in line]
    assert [line for line in measured(there) if "reward" in line] == same
    assert [line["adapters"]["planner"]["behaviour_gap"] < 1e-4 for line in same] == [True] * 3


class Fates:
    """Who dies in which step of a run, and who comes in its place: driven by what the trainer does and says."""

    def __init__(self) -> None:
        events = [FORKED.Event() for _ in range(6)]
        self.first, self.second, self.third, self.is_decided, self.let_third_in, self.let_fourth_in = events
        self.notes: list[str] = []

    def executors(self, team: Agents) -> list[ForkServerProcess]:
        """Those that die, each with a request in its hands; a fourth one does not."""
        dying = [
            team.start("executor", fate=Fate(self.first)),  # in step 2: the second one stands beside it
            team.start("executor", fate=Fate(self.second)),  # in step 3: the third one comes when it is missed
            # In step 4, with the second of its two episodes: nobody comes in time.
            team.start(
                "executor",
                let_in=self.let_third_in,
                fate=Fate(self.third, candidates=3, spared=1, until=self.is_decided),
            ),
        ]
        team.start("executor", let_in=self.let_fourth_in)
        return dying

    def on_step(self, step: int) -> None:
        """A step of training is over."""
        if step <= 3:
            (self.first, self.second, self.third)[step - 1].set()

    def on_episode(self) -> None:
        """An episode was played to its end."""
        if self.third.is_set():
            self.is_decided.set()

    def note(self, text: str) -> None:
        """The trainer says that it waits for an agent, and what came of it."""
        self.notes.append(text)
        if self.second.is_set() and "no process serves" in text:
            did_not_come = any("did not come" in earlier for earlier in self.notes)
            (self.let_fourth_in if did_not_come else self.let_third_in).set()


class Killed(NamedTuple):
    """A run whose executors were killed."""

    run: Path
    outcome: TrainingOutcome
    exit_codes: list[int | None]
    notes: list[str]

    def steps(self) -> list[dict[str, Any]]:
        """The metrics of every step."""
        return [line for line in measured(self.run) if "reward" in line]


@pytest.fixture(scope="module")
def killed(
    tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], base_for: BaseFor
) -> Iterator[Killed]:
    base_for("relay")
    folder, fates = tmp_path_factory.mktemp("killed"), Fates()
    playing = ("scenario=relay", *small_overrides)
    config = load_config([*playing, *SHORT, "train.steps=5", f"run_dir='{folder}/run'"])
    scenario = build_scenario(config.scenario)
    with (
        broker("relay", folder / "bus") as running,
        agents(running, playing) as team,
        pytest.MonkeyPatch.context() as patch,
    ):
        team.start("planner")
        dying = fates.executors(team)
        team.wait()
        coordinator = read_env(running.directory / "passwords" / "coordinator.env")
        patch.setenv("MAS_BUS_PASSWORD", coordinator["MAS_BUS_PASSWORD"])
        after(patch, RunWatcher, "on_step", lambda step, *_: fates.on_step(step))
        after(patch, EpisodeRecorder, "close", lambda *_: fates.on_episode())
        opening = over_bus(
            resolve(config, scenario),
            coordinator["MAS_BUS_URL"],
            note=fates.note,
            wait_s=10.0,
            options=MqttOptions(absent_s=1.0),
        )
        outcome = train_in_directory(config, scenario, console=Console(file=io.StringIO()), opening=opening)
        yield Killed(folder / "run", outcome, [process.exitcode for process in dying], fates.notes)


def after(patch: pytest.MonkeyPatch, owner: type, name: str, call: Callable[..., object]) -> None:
    """Call with the same arguments after each call of a method."""
    first = getattr(owner, name)

    def both(self: Any, *args: Any) -> Any:
        found = first(self, *args)
        call(*args)
        return found

    patch.setattr(owner, name, both)


@pytest.mark.nightly
def test_agents_that_are_killed_in_the_middle_of_a_step_do_not_end_training(killed: Killed) -> None:
    assert killed.exit_codes == [-signal.SIGKILL] * 3
    assert killed.outcome.reason == "5 steps done"
    assert killed.outcome.progress.versions == {"planner": 5, "executor": 5}
    assert [note.split(": waiting")[0] for note in killed.notes[-6:]] == [
        *("no process serves relay/executor", "relay/executor is there"),
        *("no process serves relay/executor", "relay/executor did not come"),
        *("no process serves relay/executor", "relay/executor is there"),  # for the canary of what was learned
    ]


@pytest.mark.nightly
def test_every_episode_is_finished_or_failed_with_its_cause(killed: Killed) -> None:
    # Two tasks a step are two episodes opened.
    counts = [(line["episodes"]["done"], line["episodes"]["failed"]) for line in killed.steps()]
    assert counts == [(2, 0), (2, 0), (2, 0), (1, 1), (2, 0)]
    assert [line["failed_attempts"] > 0 for line in killed.steps()] == [False, False, True, True, False]
    samples = [json.loads(line) for line in (killed.run / "samples.jsonl").read_text().splitlines()]
    (failed,) = [sample for sample in samples if sample["status"] == "failed"]
    assert (failed["step"], failed["source"]) == (4, "training")
    assert failed["cause"].startswith("AgentFailed: agent 'executor' failed in turn 0: ")
    assert re.search(r"left without an answer|the last listener at 'relay/executor' left", failed["cause"])
    assert failed["cause"].endswith(failed["attempts"][-1]["cause"])
    evaluated = [line["eval"] for line in measured(killed.run) if "eval" in line]
    assert [result["unplayed"] for line in evaluated for result in line.values()] == [0] * 4


@pytest.mark.nightly
def test_what_was_sampled_and_served_was_the_learners_all_along(killed: Killed) -> None:
    for line in killed.steps():
        assert {*line["adapters"]} == {*line["canary"]} == {"planner", "executor"}
        assert max(adapter["behaviour_gap"] for adapter in line["adapters"].values()) < 1e-4
        assert max(adapter["gap"] for adapter in line["canary"].values()) < 1e-4
        assert min(adapter["from_previous"] for adapter in line["canary"].values()) > 1e-4
    for content in adapters(killed.run).values():  # a fresh adapter's B are all zero
        assert all(tensor.any() for name, tensor in safetensors.torch.load(content).items() if "lora_B" in name)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--ca", "x.pem"), "--ca is for a bus, and --bus is not given"),
        (("--wait", "3"), "--wait is for a bus, and --bus is not given"),
        (("--bus", "http://coordinator@127.0.0.1/x"), "begins with 'http'"),
        (("--bus", "mqtt://coordinator@127.0.0.1:9/x"), "127.0.0.1:9"),
        (("--bus", "mqtt://relay%2Fplanner@127.0.0.1:9/x"), "the user that plays or trains it is 'coordinator'"),
        (("engine=vllm", "--bus", "mqtt://coordinator@127.0.0.1:9/x"), "give it to `mas agent`"),
    ],
)
def test_a_mistake_is_one_line(
    mas: Mas, words: tuple[str, ...], problem: str, tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    found = mas("train", "scenario=relay", *small_overrides, f"run_dir={tmp_path}/run", *words)
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert problem in found.err


def test_without_its_agents_training_says_who_is_missing(
    tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...]
) -> None:
    with running_mosquitto(tmp_path) as open_broker:
        words = ("scenario=relay", *small_overrides, f"run_dir={tmp_path}/run")
        found = mas("train", *words, "--bus", open_broker.url("coordinator"), "--wait", "0.2")
    assert found.code == 2
    missing = (
        "after 0.2 s no process serves 'relay/executor', 'relay/planner' on this bus (agents there: nobody): start"
    )
    assert missing in found.err
    assert "no process serves relay/planner: waiting 0.2 s for `mas agent planner --bus URL`" in found.out
    assert "relay/planner did not come" in found.out
