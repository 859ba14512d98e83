"""The learning test of a real model: what `mas demo` trains, a customer and a seller of SmolLM2-135M."""

from pathlib import Path

import pytest

from mas.commands.demo import DEMO_OVERRIDES
from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.serving.model import load_base
from mas.training.trainer import Trainer
from mas.training.watch import Silent


@pytest.mark.slow
@pytest.mark.nightly(shard=False)  # minutes a seed
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(3))
async def test_the_team_of_the_demo_learns_to_shop(smollm: Path, seed: int) -> None:
    config = load_config([*DEMO_OVERRIDES, f"train.seed={seed}"])
    base = load_base(config.model)
    assert base.name == str(smollm)
    watcher = Silent()
    await Trainer(resolve_training(config), base).run(watcher)
    assert watcher.curve[0].value < 0.5  # drawing among the prices: 0.25
    assert watcher.curve[-1].value >= 0.8
