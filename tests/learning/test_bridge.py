"""The learning tests of bridged ids: a game of one seat, and one that two seats win together."""

from pathlib import Path
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
    """Mean payoff and success of held-out games by step, at the temperature of training."""

    def __init__(self) -> None:
        self.found: dict[int, float] = {}
        self.success: dict[int, float] = {}

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: Any, episodes: Any) -> None:
        pass

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "sampled":
            self.found[step] = evaluation.measures["payoff"]
            self.success[step] = evaluation.success


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


EASY = """
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv


class Easy(FrozenLakeEnv):
    max_turns, floor = 8, 0.0

    def __init__(self, render_mode=None):
        super().__init__(render_mode, desc=["SFF", "FHF", "FFG"], is_slippery=False)
"""


@pytest.fixture
def easy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of an easy map."""
    pytest.importorskip("gymnasium")
    (tmp_path / "lake.py").write_text(EASY)
    monkeypatch.chdir(tmp_path)
    return "gymnasium:lake.py:Easy"


@pytest.mark.slow
@pytest.mark.nightly(shard=False)
@pytest.mark.parametrize("seed", range(3))
async def test_a_way_over_a_frozen_lake_is_learned(base_for: BaseFor, easy: str, seed: int) -> None:
    """Seeds 0, 1, 2: success 0.08, 0.04, 0.04 before and 0.40, 0.29, 0.36 after."""
    few = (f"train.seed={seed}", "train.steps=20", "train.eval_every=20", "train.eval_tasks=200")
    config = load_config(["scenario=bridge", f"scenario.options.id={easy}", "algorithm=parallel_grpo", *few])
    payoffs = Payoffs()
    base = base_for({"name": "bridge", "options": {"id": easy}}, ModelOptions())
    await Trainer(resolve_training(config), base).run(payoffs)
    assert payoffs.success[20] > payoffs.success[0] + 0.15
