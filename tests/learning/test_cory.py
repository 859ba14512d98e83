"""The learning test of CORY: pioneer and observer both come to answer better, each by its own measure."""

from typing import Any

import pytest
from conftest import BaseFor

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.scenarios import build_scenario
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer


class Sampled:
    """Held-out success of the observer and of the pioneer by step, at the temperature of training."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[float, float]] = {}

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: Any, episodes: Any) -> None:
        pass

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "sampled":
            self.found[step] = (evaluation.success, evaluation.measures["pioneer_success"])


@pytest.mark.slow
@pytest.mark.matrix("seed", range(3), default=[0])
async def test_pioneer_and_observer_both_learn(base_for: BaseFor, seed: int) -> None:
    words = [f"train.seed={seed}", "train.steps=80", "train.eval_every=80", "learner.final_lr=0.1"]
    config = load_config(["scenario=refine", "algorithm=cory", *words])
    sampled = Sampled()
    await Trainer(config, build_scenario(config.scenario), base_for("refine", ModelOptions())).run(sampled)
    for before, after in zip(sampled.found[0], sampled.found[80], strict=True):
        assert after > before + 0.1
