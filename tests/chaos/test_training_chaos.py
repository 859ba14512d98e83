"""`mas train` is killed at random moments and started again until it ends: its files are those of an undisturbed run.

`make chaos` kills six of them, 24 times in all; every run has tests/training/test_run.py.
"""

import hashlib
import random
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from forked import FORKED

from mas.cli import main
from mas.observe.files import delete_directory
from mas.observe.metrics import read_metrics
from mas.training import checkpoint

pytestmark = pytest.mark.slow
KEPT = 2
ALL = (
    "train.steps=20", "train.target=null", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=4",
    "train.checkpoint_every=2", f"train.keep_checkpoints={KEPT}", "train.sample_every=1",
    "algorithm.sampler.candidates=2",
)  # fmt: skip
RUNS = {
    "tree": ("scenario=relay",),
    "critic": ("scenario=relay", "algorithm=ppo"),
    "replay": ("scenario=relay", "algorithm=arpo", "train.tasks.source=epochs", "train.tasks.count=8"),
    "exchange": ("scenario=refine", "algorithm=cory"),
    "opponents": (
        "scenario=two_player", "algorithm=spiral", "algorithm.opponents.players.solved=cfr:20",
        "algorithm.opponents.mix='0.5*self+0.5*pfsp:2'",
    ),
    "in_flight": ("scenario=relay", "train.staleness=2", "model.max_batch=1"),
}  # fmt: skip
"""Their checkpoints hold different things beside adapters and optimisers: nothing, a critic, successes in store,
adapters that changed places, how games against others went, batches in flight with older adapters (sampled one by one,
as rounding would depend on what was quick)."""
TIMES = ("played_s", "waited_s", "idle_s")
ANY_TIME = ("checkpoint", "step", "deleting", "line", "start")
"""Where a run is killed: at three of these, each of them in three or four runs, and in its export at the end."""
PAUSE_S = 0.02
"""How long each run waits before it deletes a checkpoint, so that the test sees one more than it keeps."""
WITHIN_S = {"start": 0.3, "step": 0.2, "line": 0.0005, "checkpoint": 0.02, "deleting": 2 * PAUSE_S, "export": 0.003}
"""What a kill waits for, and the most seconds that it comes after it: the life has the directory; it has written lines
of metrics, or one just now; it writes a checkpoint; there is one more than it keeps; it exports."""


def slowly_deleted(folder: Path) -> None:
    time.sleep(PAUSE_S)
    delete_directory(folder)


def train(words: tuple[str, ...], log: Path) -> None:
    """`mas train WORDS`."""
    torch.set_num_threads(1)
    sys.argv = ["mas", "train", *words]
    slow = patch.object(checkpoint, "delete_directory", slowly_deleted)
    with slow, log.open("w") as output, redirect_stdout(output), redirect_stderr(output):
        main()


def life(words: tuple[str, ...], log: Path) -> BaseProcess:
    """Such a process, which has loaded its modules."""
    process = FORKED.Process(target=train, args=(words, log))
    process.start()
    return process


def hidden(folder: Path) -> set[str]:
    return {path.name for path in folder.glob(".*.tmp")}


def kill(process: BaseProcess, run: Path, where: str, draw: random.Random) -> bool:
    """Kill it soon after it has come to `where`; False: it ended first, which only an export is short enough for."""
    lines, folder = run / "metrics.jsonl", run / ("adapters" if where == "export" else "checkpoints")
    leftovers = hidden(folder)
    to_see = {"step": 3, "line": draw.randint(1, 5)}.get(where, 1)

    def state() -> object:
        if where == "start":
            return (run / ".lock").read_text() if (run / ".lock").exists() else ""
        if where in ("step", "line"):
            return lines.stat().st_size if lines.exists() else 0
        if where == "deleting":
            return len(list(folder.glob("step-*"))) > KEPT
        return bool(hidden(folder) - leftovers)

    last = state()
    while to_see:
        if where == "export" and not process.is_alive():  # on a busy machine nobody looked while it exported
            return False
        assert process.is_alive(), f"it ended before it was killed at: {where}"
        if (now := state()) != last:
            last, to_see = now, to_see - 1
    time.sleep(draw.uniform(0.0, WITHIN_S[where]))
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL or where == "export"
    return process.exitcode == -signal.SIGKILL


def written(run: Path) -> dict[str, object]:
    """Every file of a run and what is in it, without how long things took, where the run is, and its processes."""
    aside = (".lock", "config.yaml", "cluster.json")
    files: dict[str, object] = {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in run.rglob("*")
        if path.is_file() and path.parent.name != "tensorboard" and path.name not in aside
    }
    files["metrics.jsonl"] = [untimed(line) for line in read_metrics(run / "metrics.jsonl")]
    return files


def untimed(line: dict[str, Any]) -> dict[str, Any]:
    """A line of metrics without how long things took."""
    flights = {name: value for name, value in line.get("in_flight", {}).items() if name not in TIMES}
    return line | {"seconds": None, "in_flight": flights}


def left(run: Path) -> str:
    """What a killed process left, for the record."""
    steps = sorted(path.name.removeprefix("step-") for path in run.glob("checkpoints/step-*"))
    partial = sum(len(hidden(folder)) for folder in (run, run / "checkpoints", run / "adapters"))
    step = max((line["step"] for line in read_metrics(run / "metrics.jsonl")), default=0)
    return f"at step {step}, checkpoints {' '.join(steps) or '-'}, {partial} partly written"


@pytest.mark.nightly(shard=False)  # a minute each
@pytest.mark.parametrize("name", RUNS)
def test_a_training_that_is_killed_again_and_again_leaves_the_files_of_one_that_was_not(
    tmp_path: Path, name: str, small_overrides: tuple[str, ...]
) -> None:
    words, draw = (*RUNS[name], *ALL, *small_overrides), random.Random(name)
    log, run, whole = tmp_path / "log", tmp_path / "run", tmp_path / "whole"
    undisturbed = life((*words, f"run_dir={whole}"), log)
    undisturbed.join()
    assert undisturbed.exitcode == 0, log.read_text()
    first = list(RUNS).index(name)
    for where in [*(ANY_TIME * 2)[first : first + 3], "export"]:
        was_killed = kill(life((*words, f"run_dir={run}"), log), run, where, draw)
        print(f"{name}: {'killed' if was_killed else 'ended'} at {where}: {left(run)}")
    last = life((*words, f"run_dir={run}"), log)
    last.join()
    assert last.exitcode == 0, log.read_text()
    assert written(run) == written(whole)
