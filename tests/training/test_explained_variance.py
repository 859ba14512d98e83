"""What a critic knows of rewards that its prompts foretell, on prompts that it has not learned from."""

from random import Random

import msgspec
import pytest
from conftest import BaseFor
from parts import SKILLED, make_turn
from rows import learner_of

from mas.algorithms.parts.options import AlgorithmOptions
from mas.core.records import Episode, Turn
from mas.serving.model import BaseModel
from mas.training.updates.ppo import Ppo

TOKENS = range(4, 14)
"""Digits, of which prompts are made; the reward is 1 where the first is one of the lower half."""


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def episode(random: Random, number: int) -> Episode:
    ids = tuple(random.choice(TOKENS) for _ in range(2))
    turn: Turn = make_turn(
        role="planner", group=f"task{number}/planner", trajectory=str(number), prompt_ids=(5, *ids, 7),
        completion_ids=(random.choice((8, 9)),), rewards={"team.won": float(ids[0] < 9)},
    )  # fmt: skip
    return Episode(
        id=str(number), task=f"task{number}", success=True, turns=(msgspec.structs.replace(turn, id=str(number)),),
        lines=(), rewards={}, prompt_tokens=0, completion_tokens=0, calls=0,
    )  # fmt: skip


def explained(base: BaseModel, steps: int, **critic: int) -> list[float]:
    """Explained variance of each step's batch, before the critic has seen it."""
    algorithm = AlgorithmOptions.model_validate(
        {"sampler": {"mode": "parallel"}, "advantage": {"baseline": "critic"}, "critic": critic}
    )
    ppo, random, found = Ppo(learner_of(base), algorithm, seed=0), Random(0), []
    for step in range(steps):
        batch = [episode(random, 64 * step + number) for number in range(64)]
        told = ppo.improve(batch, {"planner": "planner"}, step=step + 1, lr_scale=1.0).learned["planner"]
        found.append(told["explained_variance"])
    return found


def test_it_rises_where_the_prompt_foretells_the_reward_and_sooner_with_minibatches(base: BaseModel) -> None:
    parts, whole = explained(base, 7), explained(base, 7, minibatches=1)
    assert parts[0] == whole[0] == 0.0
    assert min(parts[-2:]) > 0.6
    assert max(whole[-2:]) < min(parts[-2:]) - 0.1
