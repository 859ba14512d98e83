"""The learning tests of WaltzRL on `safe_reply`: answers get better; feedback falls silent if labels pay to the end."""

import pytest
from conftest import BaseFor
from watched import Sampled

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.runs.resolve import resolve_training
from mas.training.trainer import Trainer

LOOP = "feedback-conversation"


LABELS_TO_THE_END = (
    "algorithm.options.stages=[{roles: [feedback], steps: 5}, {roles: [conversation, feedback], steps: 100}]"
)


@pytest.mark.slow
@pytest.mark.nightly(shard=False)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("words", [(), (LABELS_TO_THE_END,)], ids=["preset", "labels"])
async def test_answers_get_better_and_feedback_falls_silent_if_labels_pay_to_the_end(
    base_for: BaseFor, words: tuple[str, ...], seed: int
) -> None:
    few = ("train.steps=30", "train.eval_every=30", f"train.seed={seed}")
    config = load_config(["scenario=safe_reply", "algorithm=waltzrl", *few, *words])
    watcher = Sampled()
    await Trainer(resolve_training(config), base_for("safe_reply", ModelOptions())).run(watcher)
    first, last = watcher.found[0], watcher.found[30]
    assert first.loops[LOOP].triggered > 0.25
    assert last.success >= 0.95 > first.success
    if words:
        assert last.loops[LOOP].triggered < 0.1
