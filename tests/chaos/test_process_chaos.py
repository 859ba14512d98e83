"""Processes of a training are killed and stopped at random: its files are those of an undisturbed run.

Ten runs with a rollout worker and ten with two engine replicas, all with two learner ranks and samples of one version
before. In each, four things happen at random moments and in random order: a worker (or a replica) is killed, a rank is
killed, the process that trains is killed and the command given again, and one of the three is stopped: a worker or a
rank for ever, the process that trains for longer than `cluster.hung_s`. No process lives on. About two minutes a run.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from test_training_chaos import untimed, written

from mas.observe.metrics import read_metrics

pytestmark = [pytest.mark.slow, pytest.mark.nightly(shard=False), pytest.mark.timeout(1200)]
WORDS = (
    "scenario=relay", "train.staleness=1", "model.max_batch=1", "train.steps=16", "train.target=null",
    "train.tasks_per_step=2", "train.eval_first=false", "train.eval_every=0", "train.eval_tasks=2",
    "train.checkpoint_every=2", "algorithm.sampler.candidates=2", "cluster.heartbeat_s=0.5",
)  # fmt: skip
HUNG_S = 6
LIFE = "MAS_TEST_RUN"
"""Names the run in the environment of its command and of what that starts on this machine."""
LOCAL = ("cluster.learners=2", "cluster.cpus=4", f"cluster.hung_s={HUNG_S}")
PLAYERS = {"rollout": "cluster.workers=1", "engine": "cluster.engines=2"}


class Life:
    """One `mas train`, with the processes that it has started."""

    def __init__(self, run: Path, *overrides: str) -> None:
        self.run = run
        self._earlier = {str(line) for line in self._lines()}
        with (run.parent / f"{run.name}.log").open("a") as log:
            words = [*WORDS, *overrides, f"run_dir={run}"]
            command = [sys.executable, "-m", "mas", "train", *words]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {LIFE: str(run)})

    def _lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.run / "metrics.jsonl")

    def steps(self) -> int:
        return max((line["step"] for line in self._lines()), default=0)

    def wait_for_step(self, step: int) -> None:
        """Until it is done, and this life has done one: a process that is lost while it starts for the first time is
        an error.

        How new metrics.jsonl is does not tell. A line that was half written when the life before was killed is cut off
        as soon as the file is opened; whole lines behind the last checkpoint stay until all processes run. So it is
        looked for a line that was not there before: lines say how long things took, and no two of them are the same.
        """
        self._wait(lambda: self.steps() >= step and any(str(line) not in self._earlier for line in self._lines()))

    def child(self, kind: str, draw: random.Random) -> int:
        """One of a kind, once there is one."""
        self._wait(lambda: bool(started(self.run, kind)))
        return draw.choice(sorted(started(self.run, kind)))

    def _wait(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 600
        while not holds():
            assert self.process.poll() is None, "it ended first"
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self) -> int:
        return self.process.wait()


def started(run: Path, kind: str = "") -> list[int]:
    """Processes of a run that live, whoever started them: what they print goes to RUN/workers/KIND-NUMBER.out."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            output = (path / "fd" / "1").readlink()
        except OSError:  # it has ended, or is another user's
            continue
        if output.parent == run / "workers" and output.name.startswith(kind):
            found.append(int(path.name))
    return found


def descended(run: Path) -> list[int]:
    """Processes that live and have their environment from a run's command, such as the one that cleans up behind it."""
    found, mark = [], f"{LIFE}={run}".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            variables = (path / "environ").read_bytes()
        except OSError:  # it has ended, or is another user's
            continue
        if mark in variables.split(b"\0"):
            found.append(int(path.name))
    return found


def wait_ended(run: Path, pids: Iterable[int] | None = None) -> None:
    """Until these processes of a run, None: all, have ended."""
    until = time.monotonic() + 15
    while left := [pid for pid in {*started(run), *descended(run)} if pids is None or pid in pids]:
        assert time.monotonic() < until, f"{left} live on"
        time.sleep(0.2)


def content(run: Path) -> dict[str, object]:
    """What the run left, without what processes printed, which there were, and how often they were started again."""
    files = {name: one for name, one in written(run).items() if not name.startswith("workers/")}
    aside = {"workers": None, "engines": None, "learners": None}
    return files | {"metrics.jsonl": [untimed(line) | aside for line in read_metrics(run / "metrics.jsonl")]}


def undisturbed(run: Path, *words: str) -> dict[str, object]:
    """What a run with a worker and two learner ranks leaves."""
    assert Life(run, *LOCAL, PLAYERS["rollout"], *words).end() == 0
    return content(run)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> dict[str, object]:
    return undisturbed(tmp_path_factory.mktemp("whole") / "run", *small_overrides)


def disturbed(run: Path, player: str, seed: int, *words: str) -> dict[str, object]:
    """What a run leaves in which four things happen; none of its processes is left."""
    draw, life = random.Random(f"{player}-{seed}"), Life(run, *words)
    kinds = (player, "learner", "driver")
    events = [*(f"kill {kind}" for kind in kinds), f"stop {draw.choice(kinds)}"]
    draw.shuffle(events)
    for event, step in zip(events, sorted(draw.sample(range(1, 7), len(events))), strict=True):
        sign, kind = event.split()
        life.wait_for_step(step)
        time.sleep(draw.uniform(0.0, 0.5))
        print(f"{event} in step {life.steps() + 1}", flush=True)
        if kind != "driver":
            os.kill(life.child(kind, draw), signal.SIGKILL if sign == "kill" else signal.SIGSTOP)
        elif sign == "stop":
            os.kill(life.process.pid, signal.SIGSTOP)
            time.sleep(HUNG_S + draw.uniform(0.0, 4.0))
            os.kill(life.process.pid, signal.SIGCONT)
        else:
            orphans = started(run)
            life.process.kill()
            life.process.wait()
            life = Life(run, *words)
            wait_ended(run, orphans)
    assert life.end() == 0, run.with_name(f"{run.name}.log").read_text()
    wait_ended(run)
    return content(run)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_killed_or_stopped_the_run_is_the_same(
    tmp_path: Path, whole: dict[str, object], seed: int, small_overrides: tuple[str, ...]
) -> None:
    assert disturbed(tmp_path / "run", "rollout", seed, *LOCAL, PLAYERS["rollout"], *small_overrides) == whole


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_killed_or_stopped_engine_replicas_leave_what_workers_do(
    tmp_path: Path, whole: dict[str, object], seed: int, small_overrides: tuple[str, ...]
) -> None:
    assert disturbed(tmp_path / "run", "engine", seed, *LOCAL, PLAYERS["engine"], *small_overrides) == whole
