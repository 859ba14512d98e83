"""Costs as reward terms: tokens, prices and seconds of each turn, in trees and in whole episodes."""

import pytest
from conftest import BaseFor
from parts import SKILLED, turns_of
from pydantic import ValidationError
from watched import Seen

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import total_reward
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.policy import Price
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.training.check_setup import check_trainable
from mas.training.trainer import Trainer

FEW = (
    "scenario=relay",
    "train.steps=1",
    "train.tasks_per_step=2",
    "train.eval_every=0",
    "train.eval_tasks=1",
    "train.target=null",
)
PRICE = Price(prompt=0.5, completion=2.0)


def priced(config: Config) -> Scenario:
    """The planner has a price, the executor has none."""
    scenario = build_scenario(config.scenario)
    team = scenario.teams["team"]
    roles = {**team.roles, "planner": team.roles["planner"].model_copy(update={"price": PRICE})}
    teams = {**scenario.teams, "team": team.model_copy(update={"roles": roles})}

    class Priced:
        def __getattr__(self, name: str) -> object:
            return teams if name == "teams" else getattr(scenario, name)

    return Priced()


async def played(base_for: BaseFor, *words: str) -> tuple[Config, Seen]:
    config, seen = load_config([*FEW, *words, "train.target=null"]).model_copy(update={"model": SKILLED}), Seen()
    trainer = Trainer(resolve_training(config, priced(config)), base_for("relay", SKILLED))
    seen.listen(trainer)
    await trainer.run(seen)
    return config, seen


@pytest.mark.parametrize("preset", ["at_grpo", "parallel_grpo"])
async def test_every_turn_pays_for_its_own_tokens_at_its_own_price(base_for: BaseFor, preset: str) -> None:
    words = (f"algorithm={preset}", "algorithm.reward.cost=[tokens,price]", "algorithm.reward.weights={cost_tokens: 3}")
    config, seen = await played(base_for, *words)
    turns = turns_of(seen.episodes[0])
    assert {turn.role for turn in turns} == {"planner", "executor"}
    for turn in turns:
        prompt, completion = len(turn.prompt_ids), len(turn.completion_ids)
        cost = (0.5 * prompt + 2.0 * completion) / 1000 if turn.role == "planner" else 0.0
        assert turn.rewards["own.cost_tokens"] == pytest.approx(-(prompt + completion) / 1000)
        assert turn.rewards["own.cost_price"] == pytest.approx(-cost)
        free = {name: value for name, value in turn.rewards.items() if "cost" not in name}
        reward = config.algorithm.reward
        assert total_reward(turn.rewards, reward) == pytest.approx(
            total_reward(free, reward) - 3 * (prompt + completion) / 1000 - cost
        )


async def test_seconds_of_a_request_are_charged_as_measured(base_for: BaseFor) -> None:
    _, seen = await played(base_for, "algorithm=parallel_grpo", "algorithm.reward.cost=[seconds]")
    seconds = [turn.rewards["own.cost_seconds"] for turn in turns_of(seen.episodes[0])]
    assert all(-600 < value < 0 for value in seconds)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"reward": {"cost": ["seconds"]}}, "candidates of sampler.mode=tree are one request"),
        ({"reward": {"cost": ["tokens", "tokens"]}}, "name each once"),
        ({"reward": {"cost": ["tokens"]}, "sampler": {"mode": "full_tree"}}, "turns are shared among episodes"),
        ({"reward": {"cost": ["tokens"]}, "update": "training_free", "sampler": {"mode": "parallel"}}, "nobody reads"),
    ],
)
def test_costs_that_cannot_be_told_or_that_nothing_reads_are_refused(algorithm: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        AlgorithmOptions.model_validate(algorithm)


def test_prices_are_refused_where_no_role_has_one() -> None:
    config = load_config(["scenario=relay", "algorithm.reward.cost=[price]"])
    with pytest.raises(ConfigError, match="no role of team 'relay' has one: give a role"):
        check_trainable(resolve(config))
    check_trainable(resolve(config, priced(config)))
