"""CoMAS by name: members pay each other, and no label enters what is learned from."""

import pytest
from conftest import BaseFor
from parts import SKILLED, turns_of
from watched import Seen

from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.scenarios.discussion import DiscussionQuestion
from mas.training.trainer import Trainer

BY_NAME = ("algorithm=comas", "scenario=discussion")
SMALL = ("train.steps=1", "train.tasks_per_step=4", "train.eval_every=0", "train.eval_tasks=2", "train.target=null")


@pytest.mark.parametrize("words", [(), ("algorithm.sampler.mode=tree", "algorithm.reward.of=trajectory")])
async def test_no_label_enters(base_for: BaseFor, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    config = load_config([*BY_NAME, *SMALL, *words]).model_copy(update={"model": SKILLED})
    base, paid, compared = base_for("discussion", SKILLED), [], []
    for label in (True, False):
        monkeypatch.setattr(DiscussionQuestion, "is_right", lambda self, answer, label=label: label)
        seen = Seen()
        trainer = Trainer(resolve_training(config), base)
        seen.listen(trainer)
        await trainer.run(seen)
        paid.append([(turn.rewards, turn.paid) for turn in turns_of(seen.episodes[0])])
        compared.append(seen.improved[0].advantages)
    assert paid[0] == paid[1]
    assert compared[0] == compared[1]
    assert {name for terms, _ in paid[0] for name in terms} <= {"own.score", "own.failure"}
    assert any(advantage for advantage in compared[0])


def test_the_preset_asks_its_own_scenario_alone_for_rewards_without_labels() -> None:
    assert load_config(BY_NAME).scenario.options == {"pay": "scores"}
    assert load_config([*BY_NAME, "scenario.options.pay=truth"]).scenario.options == {"pay": "truth"}
    assert load_config(["algorithm=comas", "scenario=safe_reply"]).scenario.options == {}
