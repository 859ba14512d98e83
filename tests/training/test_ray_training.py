"""`mas train` with rollout workers that are actors of a Ray: it learns what one process learns."""

import subprocess
import sys
from pathlib import Path

import pytest
from cluster_cases import needs_ray
from test_training_chaos import untimed

from mas.observe.metrics import read_metrics

pytestmark = [needs_ray, pytest.mark.slow, pytest.mark.nightly(shard=False), pytest.mark.timeout(1800)]
WORDS = (
    "scenario=relay", "train.staleness=1", "model.max_batch=1", "train.steps=3", "train.target=null",
    "train.tasks_per_step=2", "train.eval_first=false", "train.eval_every=0", "train.eval_tasks=2",
    "train.sample_every=1", "algorithm.sampler.candidates=2",
)  # fmt: skip


def train(run: Path, *words: str) -> None:
    command = [sys.executable, "-m", "mas", "train", *WORDS, *words, f"run_dir={run}"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def learned(run: Path) -> dict[str, object]:
    """Weights, what was sampled, and metrics without times and without workers."""
    weights = {str(path.relative_to(run)): path.read_bytes() for path in run.glob("adapters/*/*.safetensors")}
    assert len(weights) == 2
    lines = [{name: one for name, one in untimed(line).items() if name != "workers"} for line in _metrics(run)]
    return weights | {"samples": (run / "samples.jsonl").read_text(), "metrics": lines}


def _metrics(run: Path) -> list[dict[str, object]]:
    return read_metrics(run / "metrics.jsonl")


def test_a_training_on_ray_has_the_episodes_and_the_weights_of_one_process(
    tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "ray"
    train(alone, *small_overrides)
    train(spread, *small_overrides, "cluster=ray", "cluster.workers=2", "cluster.start_s=900")
    assert [line["workers"] for line in _metrics(spread) if "workers" in line] == [{"count": 2, "restarts": 0}] * 3
    assert learned(spread) == learned(alone)
    assert {path.name for path in (spread / "workers").glob("*.out")} == {"rollout-0.out", "rollout-1.out"}
