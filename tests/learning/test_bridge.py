"""The learning tests of bridged ids: a game of one seat, and one that two seats win together."""

from typing import Any

import pytest
from conftest import BaseFor

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.runs.resolve import resolve_training
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer

pytest.importorskip("pyspiel")


class Payoffs:
    """Mean payoff of held-out games by step, at the temperature of training."""

    def __init__(self) -> None:
        self.found: dict[int, float] = {}

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: Any, episodes: Any) -> None:
        pass

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "sampled":
            self.found[step] = evaluation.measures["payoff"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words", "gain"),
    [
        ("open_spiel:blackjack", ("algorithm=parallel_grpo",), 0.1),
        ("open_spiel:tiny_hanabi", ("algorithm=parallel_grpo",), 0.5),
    ],
)
@pytest.mark.nightly(shard=False)
@pytest.mark.parametrize("seed", range(3))
async def test_a_bridged_id_is_learned(
    base_for: BaseFor, name: str, words: tuple[str, ...], gain: float, seed: int
) -> None:
    few = (f"train.seed={seed}", "train.steps=20", "train.eval_every=20", "train.eval_tasks=200")
    config = load_config(["scenario=bridge", f"scenario.options.id={name}", *words, *few])
    payoffs = Payoffs()
    base = base_for({"name": "bridge", "options": {"id": name}}, ModelOptions())
    await Trainer(resolve_training(config), base).run(payoffs)
    assert payoffs.found[20] > payoffs.found[0] + gain
