"""Processes of a training are killed and stopped at random: its files are those of an undisturbed run.

Ten runs with a rollout worker and five with two engine replicas, all with two learner ranks and samples of one version
before. In each, three of five things happen at random moments: a worker (or a replica) or a rank is killed or stopped,
or the process that trains is killed and the command given again. No process lives on. About a minute a run.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_training_chaos import untimed, written

from mas.observe.metrics import read_metrics
from mas.training.checkpoint import checkpoint_steps

pytestmark = [pytest.mark.slow, pytest.mark.nightly(shard=False), pytest.mark.timeout(1200)]
WORDS = (
    "scenario=relay", "train.staleness=1", "model.max_batch=1", "train.steps=8", "train.target=null",
    "train.tasks_per_step=2", "train.eval_first=false", "train.eval_every=0", "train.eval_tasks=2",
    "train.checkpoint_every=2", "algorithm.sampler.candidates=2", "cluster.heartbeat_s=0.5",
)  # fmt: skip
LOCAL = ("cluster.learners=2", "cluster.cpus=4", "cluster.hung_s=6")
PLAYERS = {"rollout": "cluster.workers=1", "engine": "cluster.engines=2"}


class Life:
    """One `mas train`, and all processes that it has started."""

    def __init__(self, run: Path, *overrides: str) -> None:
        self.run, self.seen, self.began = run, set[int](), time.time()
        self._resumed = max(checkpoint_steps(run / "checkpoints"), default=0)
        with (run.parent / f"{run.name}.log").open("a") as log:
            words = [*WORDS, *overrides, f"run_dir={run}"]
            self.process = subprocess.Popen([sys.executable, "-m", "mas", "train", *words], stdout=log, stderr=log)

    def children(self, kind: str) -> list[int]:
        """Those of a kind that live."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
                output = (path / "fd" / "1").readlink()
            except (OSError, ValueError):
                continue
            if parent == self.process.pid and output.name.startswith(f"{kind}-"):
                found.append(int(path.name))
        self.seen |= {*found}
        return found

    def steps(self) -> int:
        return max((line["step"] for line in read_metrics(self.run / "metrics.jsonl")), default=0)

    def wait_for_step(self, step: int) -> None:
        """Until it is done, and one of this life: a process that is lost while it starts for the first time is an
        error."""
        self._wait(lambda: self.steps() >= max(step, self._resumed + 1) and self._has_written())

    def _has_written(self) -> bool:
        """Lines behind the last checkpoint are this life's."""
        return (self.run / "metrics.jsonl").stat().st_mtime > self.began

    def child(self, kind: str, draw: random.Random) -> int:
        """One of a kind, once there is one."""
        self._wait(lambda: bool(self.children(kind)))
        found = sorted(self.children(kind))
        return found[0] if len(found) == 1 else draw.choice(found)

    def _wait(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 300
        while not holds():
            assert self.process.poll() is None, "it ended first"
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self) -> int:
        while self.process.poll() is None:
            for kind in (*PLAYERS, "learner"):
                self.children(kind)
            time.sleep(0.2)
        return self.process.returncode


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def content(run: Path) -> dict[str, object]:
    """What the run left, without what processes printed, which there were, and how often they were started again."""
    files = {name: one for name, one in written(run).items() if not name.startswith("workers/")}
    aside = {"workers": None, "engines": None, "learners": None}
    return files | {"metrics.jsonl": [untimed(line) | aside for line in read_metrics(run / "metrics.jsonl")]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> dict[str, object]:
    run = tmp_path_factory.mktemp("whole") / "run"
    assert Life(run, *LOCAL, PLAYERS["rollout"], *small_overrides).end() == 0
    return content(run)


def disturbed(run: Path, player: str, seed: int, *overrides: str) -> dict[str, object]:
    """What a run leaves in which three things happen; none of its processes is left."""
    words = (*LOCAL, PLAYERS[player], *overrides)
    draw, all_seen, life = random.Random(seed), set[int](), Life(run, *words)
    happening = (f"kill {player}", "kill learner", f"stop {player}", "stop learner", "kill driver")
    events, steps = draw.sample(happening, 3), sorted(draw.sample(range(1, 7), 3))
    for event, step in zip(events, steps, strict=True):
        sign, kind = event.split()
        life.wait_for_step(step)
        time.sleep(draw.uniform(0.0, 0.5))
        if kind == "driver":
            life.process.kill()
            life.process.wait()
            all_seen |= life.seen
            life = Life(run, *words)
            continue
        os.kill(life.child(kind, draw), signal.SIGKILL if sign == "kill" else signal.SIGSTOP)
    assert life.end() == 0, run.with_name(f"{run.name}.log").read_text()
    until = time.monotonic() + 15
    while left := [pid for pid in all_seen | life.seen if lives(pid)]:
        assert time.monotonic() < until, f"{left} live on"
        time.sleep(0.2)
    return content(run)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_killed_or_stopped_the_run_is_the_same(
    tmp_path: Path, whole: dict[str, object], seed: int, small_overrides: tuple[str, ...]
) -> None:
    assert disturbed(tmp_path / "run", "rollout", seed, *small_overrides) == whole


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_killed_or_stopped_engine_replicas_leave_what_workers_do(
    tmp_path: Path, whole: dict[str, object], seed: int, small_overrides: tuple[str, ...]
) -> None:
    assert disturbed(tmp_path / "run", "engine", seed, *small_overrides) == whole
