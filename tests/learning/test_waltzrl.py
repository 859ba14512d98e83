"""The learning test of WaltzRL on `safe_reply`: feedback comes where it is needed, and answers get better."""

import pytest
from conftest import BaseFor
from watched import Sampled

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.scenarios import build_scenario
from mas.training.trainer import Trainer

LOOP = "feedback-conversation"


@pytest.mark.slow
@pytest.mark.nightly
async def test_feedback_is_given_and_success_rises(base_for: BaseFor) -> None:
    config = load_config(["scenario=safe_reply", "algorithm=waltzrl", "train.steps=20", "train.eval_every=5"])
    watcher = Sampled()
    await Trainer(config, build_scenario(config.scenario), base_for("safe_reply", ModelOptions())).run(watcher)
    first, last = watcher.found[0], watcher.found[20]
    assert first.loops[LOOP].triggered > 0.25
    assert last.success >= 0.95 > first.success
