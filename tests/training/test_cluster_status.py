"""RUN/cluster.json: what it says while a run trains, how it says that the run has ended, and when there is none."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from conftest import BaseFor
from run_processes import started
from test_in_flight import EXACT, Steps, config_of

from mas.cluster import ClusterOptions, open_cluster
from mas.cluster.contract import open_clusters
from mas.core.host import ProcessId, is_running, this_process
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.training.cluster_status import STATUS_FILE, ClusterStatus, read_status
from mas.training.status_file import StatusFile
from mas.training.trainer import Trainer, TrainingOutcome


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", EXACT)


def idle_trainer(staleness: int = 1) -> Trainer:
    """What the file reads of a trainer that has done three of nine steps and has nothing in flight."""
    setup = SimpleNamespace(train=SimpleNamespace(steps=9, staleness=staleness), cluster=SimpleNamespace(kind="local"))
    in_flight = SimpleNamespace(held=lambda current: set(), batches=lambda current: [], groups_dropped=0)
    progress = SimpleNamespace(step=3, versions={"planner": 3})
    return cast(Trainer, SimpleNamespace(setup=setup, in_flight=in_flight, progress=progress))


def training(
    trainer: Trainer, tmp_path: Path, error: BaseException | None = None
) -> "Coroutine[Any, Any, TrainingOutcome]":
    """Ends as soon as the file is there, or was not to be."""

    async def work() -> TrainingOutcome:
        if trainer.setup.train.staleness:
            async with asyncio.timeout(20):
                while not (tmp_path / STATUS_FILE).exists():  # noqa: ASYNC110 - a thread writes it
                    await asyncio.sleep(0.01)
            assert read_status(tmp_path).ended == ""
        if error is not None:
            raise error
        return cast(TrainingOutcome, SimpleNamespace(reason="9 steps done"))

    return work()


async def test_the_file_says_that_training_goes_on_and_then_how_it_ended(tmp_path: Path) -> None:
    trainer = idle_trainer()
    status = StatusFile(tmp_path, trainer)
    status.following(lambda *_: None)("greedy evaluation", 2, 5)
    assert (await status.during(lambda: training(trainer, tmp_path))).reason == "9 steps done"
    found = read_status(tmp_path)
    assert (found.step, found.steps, found.phase, found.ended) == (3, 9, "greedy evaluation 2/5", "9 steps done")
    assert (found.process, found.members[0].state) == (this_process(), "stopped")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no\x1b[31m" + "x" * 999), "failed: ValueError: no"),
        (asyncio.CancelledError(), "interrupted"),
    ],
)
async def test_an_error_is_raised_as_it_is_and_named_in_the_file(
    tmp_path: Path, error: BaseException, said: str
) -> None:
    trainer = idle_trainer()
    with pytest.raises(type(error)) as raised:
        await StatusFile(tmp_path, trainer).during(lambda: training(trainer, tmp_path, error))
    assert raised.value is error
    ended = read_status(tmp_path).ended
    assert ended.startswith(said)
    assert len(ended) < 400


async def test_without_processes_and_staleness_there_is_no_file_and_an_old_one_goes(tmp_path: Path) -> None:
    trainer = idle_trainer(staleness=0)
    (tmp_path / STATUS_FILE).write_text("of the process before")
    await StatusFile(tmp_path, trainer).during(lambda: training(trainer, tmp_path))
    assert not (tmp_path / STATUS_FILE).exists()


async def test_a_directory_that_takes_no_file_does_not_end_training(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    trainer = idle_trainer()

    async def work() -> TrainingOutcome:
        return cast(TrainingOutcome, SimpleNamespace(reason="done"))

    assert (await StatusFile(gone, trainer).during(work)).reason == "done"
    assert not gone.exists()


async def test_every_cluster_whose_logs_are_in_the_run_is_shown_and_no_other(tmp_path: Path) -> None:
    run = tmp_path / "run"
    status = StatusFile(run, idle_trainer(staleness=0))
    async with (
        open_cluster(ClusterOptions(cpus=4), run / "engines") as cluster,
        open_cluster(ClusterOptions(cpus=4), tmp_path / "other") as other,
    ):
        assert (open_clusters(run), open_clusters(tmp_path / "other")) == ([cluster], [other])
        worker = await cluster.spawn("engine", "cluster_workers:make", b"0")
        driver, engine = status.status().members
        assert (driver.kind, driver.pid) == ("driver", os.getpid())
        assert (engine.name, engine.kind, engine.pid, engine.state) == ("engine-0", "engine", worker.pid, "alive")
    assert open_clusters(tmp_path) == []
    assert [one.state for one in status.status("done").members] == ["stopped", "stopped"], "closed, and still listed"


class Watched(Steps):
    """Remembers what the file would say while the learner works on each step."""

    def __init__(self, run: Path, trainer: Trainer) -> None:
        super().__init__()
        self.seen: list[ClusterStatus] = []
        self._status = StatusFile(run, trainer)

    def on_phase(self, what: str, done: int, of: int) -> None:
        if what == "learning":
            self.seen.append(self._status.status())


async def test_batches_in_flight_have_their_versions_and_ages(base: BaseModel, tmp_path: Path) -> None:
    trainer = Trainer(resolve_training(config_of(2)), base)
    watched = Watched(tmp_path, trainer)
    await trainer.run(watched, watched.on_phase)
    # Of 5 steps and k = 2: when step s learns (from 1), batches s to min(s + 2, 5) are in flight, batch t is sampled
    # with version max(t - 1 - 2, 0), and version s - 1 is the newest.
    expected = [[(t, max(t - 3, 0), s - 1 - max(t - 3, 0)) for t in range(s, min(s + 2, 5) + 1)] for s in range(1, 6)]
    found = [[(one.step, one.versions["planner"], one.ages["planner"]) for one in own.batches] for own in watched.seen]
    assert found == expected
    assert {one.batches[0].is_sampled for one in watched.seen} == {True}
    assert {batch.groups for one in watched.seen for batch in one.batches} == {3}
    held = [f"{name}@{version}" for name in ("executor", "planner") for version in (0, 1, 2)]
    assert watched.seen[-1].held == [held[2], held[5]]
    assert watched.seen[2].held == [held[0], held[1], held[2], held[3], held[4], held[5]]
    assert trainer.in_flight.batches(trainer.progress.versions) == []
    watched._status._trainer = Trainer(resolve_training(config_of(0)), base)
    assert watched._status.status().held == [held[0], held[3]], "with nothing in flight: the versions of now"


@pytest.mark.nightly
async def test_workers_and_what_they_hold_are_shown(base: BaseModel, tmp_path: Path) -> None:
    config = config_of(1, steps=2)
    config = config.model_copy(update={"cluster": config.cluster.model_copy(update={"workers": 1})})
    trainer = Trainer(resolve_training(config), base, processes=lambda: started(config, base, tmp_path / "workers"))
    watched = Watched(tmp_path, trainer)
    await trainer.run(watched, watched.on_phase)
    _, worker = watched.seen[1].members
    assert (worker.name, worker.state, worker.restarts) == ("rollout-0", "alive", 0)
    # Batch 2 was begun with version 0, as batch 1 was; nothing later is in flight.
    assert watched.seen[1].held == ["executor@0", "planner@0"]


def test_a_process_is_known_by_its_number_and_its_start(tmp_path: Path) -> None:
    here = this_process()
    assert is_running(here) is True
    assert is_running(msgspec.structs.replace(here, started=(here.started or 0) + 1)) is False, (
        "the number is another's"
    )
    assert is_running(msgspec.structs.replace(here, machine="another")) is None
    code = "import msgspec; from mas.core.host import *; print(msgspec.json.encode(this_process()).decode()); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        other = msgspec.json.decode(child.stdout.readline(), type=ProcessId)
        assert other.pid == child.pid
        assert is_running(other) is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert is_running(other) is False, "it has ended, and nobody has waited for it"
    assert is_running(other) is False
    assert this_process(tmp_path).started is None, "a system without /proc"


@pytest.mark.parametrize("pid", [0, -1, 2**31])
def test_a_number_that_no_process_has_is_not_read(pid: int) -> None:
    content = json.dumps({"pid": pid, "host": "a", "machine": "b", "started": None})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(content, type=ProcessId)
