"""The learning test of CORY: pioneer and observer both come to answer better, each by its own measure."""

import pytest
from conftest import BaseFor
from watched import Sampled

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.runs.resolve import resolve_training
from mas.training.trainer import Trainer


@pytest.mark.slow
@pytest.mark.nightly(shard=False)
@pytest.mark.parametrize("seed", range(3))
async def test_pioneer_and_observer_both_learn(base_for: BaseFor, seed: int) -> None:
    words = [f"train.seed={seed}", "train.steps=80", "train.eval_every=80", "learner.final_lr=0.1"]
    config = load_config(["scenario=refine", "algorithm=cory", *words])
    sampled = Sampled()
    await Trainer(resolve_training(config), base_for("refine", ModelOptions())).run(sampled)
    before, after = sampled.found[0], sampled.found[80]
    assert after.success > before.success + 0.1
    assert after.measures["pioneer_success"] > before.measures["pioneer_success"] + 0.1
