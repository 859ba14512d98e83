"""What tests of trained players share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parts import SKILLED

from mas.config.load import load_config
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario

SHORT = (
    "train.steps=4", "train.tasks_per_step=4", "train.eval_tasks=2", "train.eval_every=0",
    "train.checkpoint_every=2", "train.keep_checkpoints=2", "learner.lr=0.01", "model.lora.rank=4",
)  # fmt: skip


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, base_for: Callable[..., Any]) -> Path:
    """A run of Kuhn poker of four steps, with checkpoints at 2 and 4; its base mostly knows the moves."""
    pytest.importorskip("pyspiel")
    base_for("two_player", SKILLED)
    tiny = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
    path = tmp_path_factory.mktemp("runs") / "kuhn"
    config = load_config(["scenario=two_player", "algorithm=spiral", *SHORT, *tiny, f"run_dir='{path}'"])
    train_in_directory(config, build_scenario(config.scenario))
    return path
