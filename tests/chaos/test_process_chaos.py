"""Processes of a training are killed and stopped at random: its files are those of an undisturbed run.

Ten runs with a rollout worker, two learner ranks and samples of one version before. In each, three of five things
happen at random moments: a worker or a rank is killed or stopped, or the process that trains is killed and the command
given again. No process lives on. About a minute a run.
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

pytestmark = [pytest.mark.slow, pytest.mark.nightly(shard=False), pytest.mark.timeout(1200)]
WORDS = (
    "scenario=relay", "train.staleness=1", "model.max_batch=1", "train.steps=8", "train.target=null",
    "train.tasks_per_step=2", "train.eval_first=false", "train.eval_every=0", "train.eval_tasks=2",
    "train.checkpoint_every=2", "algorithm.sampler.candidates=2", "cluster.workers=1", "cluster.learners=2",
    "cluster.cpus=4", "cluster.heartbeat_s=0.5", "cluster.hung_s=6",
)  # fmt: skip
EVENTS = ("kill rollout", "kill learner", "stop rollout", "stop learner", "kill driver")


class Life:
    """One `mas train`, and all processes that it has started."""

    def __init__(self, run: Path, overrides: tuple[str, ...]) -> None:
        self.run, self.seen, self.began = run, set[int](), time.time()
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
        """Until it is done, and this life has begun to train: a process that is lost before that is an error."""
        self._wait(lambda: self.steps() >= step and self._has_written())

    def _has_written(self) -> bool:
        return (self.run / "metrics.jsonl").stat().st_mtime > self.began

    def child(self, kind: str) -> int:
        """One of a kind, once there is one."""
        self._wait(lambda: bool(self.children(kind)))
        return self.children(kind)[0]

    def _wait(self, holds: Callable[[], bool]) -> None:
        until = time.monotonic() + 300
        while not holds():
            assert self.process.poll() is None, "it ended first"
            assert time.monotonic() < until
            time.sleep(0.05)

    def end(self) -> int:
        while self.process.poll() is None:
            self.children("rollout"), self.children("learner")
            time.sleep(0.2)
        return self.process.returncode


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def content(run: Path) -> dict[str, object]:
    """What the run left, without what workers printed, and how often they were started again."""
    files = {name: one for name, one in written(run).items() if not name.startswith("workers/")}
    lines = [untimed(line) for line in read_metrics(run / "metrics.jsonl")]
    return files | {"metrics.jsonl": [line | {"workers": None, "learners": None} for line in lines]}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> dict[str, object]:
    run = tmp_path_factory.mktemp("whole") / "run"
    assert Life(run, small_overrides).end() == 0
    return content(run)


@pytest.mark.parametrize("seed", range(10))
def test_whatever_is_killed_or_stopped_the_run_is_the_same(
    tmp_path: Path, whole: dict[str, object], seed: int, small_overrides: tuple[str, ...]
) -> None:
    draw, run = random.Random(seed), tmp_path / "run"
    events, steps = draw.sample(EVENTS, 3), sorted(draw.sample(range(1, 7), 3))
    life = Life(run, small_overrides)
    all_seen = set[int]()
    for event, step in zip(events, steps, strict=True):
        sign, kind = event.split()
        life.wait_for_step(step)
        time.sleep(draw.uniform(0.0, 0.5))
        if kind == "driver":
            life.process.kill()
            life.process.wait()
            all_seen |= life.seen
            life = Life(run, small_overrides)
            continue
        os.kill(life.child(kind), signal.SIGKILL if sign == "kill" else signal.SIGSTOP)
    assert life.end() == 0, (tmp_path / "run.log").read_text()
    assert content(run) == whole
    until = time.monotonic() + 15
    while left := [pid for pid in all_seen | life.seen if lives(pid)]:
        assert time.monotonic() < until, f"{left} live on"
        time.sleep(0.2)
