"""Papers that pay the outcome alone are paid by it by name: no term of the scenario's own comes in."""

import math
from typing import Any

import pytest
from parts import runtime_of, turns_of

from mas.algorithms.parts.rewards.names import FAILURE, OUTCOME
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.registry import find_algorithm
from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.parallel import ParallelSampler

PAID_BY_OUTCOME = ("oprl", "e_grpo", "igpo")


def says(prompt: str, adapter: str | None, seed: int) -> str:
    """Mostly what can be read, at times not."""
    return "abcdefgh0123456789?"[derive_seed(prompt, seed) % 19]


async def played(name: str, *words: str) -> tuple[list[Episode], RewardOptions]:
    config = load_config([f"algorithm={name}", f"scenario={find_algorithm(name).recipe.scenario}", *words])
    scenario, reward = build_scenario(config.scenario), config.algorithm.reward
    plain = reward.model_copy(update={"gain": None, "partial": None})
    async with runtime_of(scenario.teams["team"], ScriptedEngine(says)) as runtime:
        sampler = ParallelSampler(runtime, scenario.reward, config.algorithm.sampler, plain)
        episodes = await sampler.sample(scenario.task("train", 0), scenario.environment(), 0)
    return list(episodes), plain


@pytest.mark.parametrize("name", PAID_BY_OUTCOME)
async def test_by_name_a_trajectory_earns_its_episodes_success_and_no_other_term(name: str) -> None:
    episodes, reward = await played(name)
    assert reward.source == "outcome"
    dense = {term for turn in turns_of(episodes) for term in turn.rewards} - {OUTCOME, FAILURE}
    assert dense, "the scenario pays terms of its own, which are recorded and not counted"
    for episode in episodes:
        for turn in episode.turns:
            unread = turn.rewards.get(FAILURE, 0.0)
            assert total_reward(turn.rewards, reward) == pytest.approx(float(episode.success) + unread)
            assert turn.rewards[OUTCOME] == float(episode.success)


@pytest.mark.parametrize("name", PAID_BY_OUTCOME)
async def test_what_the_turns_of_an_agent_are_paid_adds_up_to_the_outcome(name: str) -> None:
    episodes, reward = await played(name)
    for episode in episodes:
        for agent in {turn.agent for turn in episode.turns}:
            own = [turn for turn in episode.turns if turn.agent == agent]
            paid = [total_reward(turn.paid, reward) for turn in own]
            assert math.fsum(paid) == pytest.approx(total_reward(own[0].rewards, reward))
            assert [OUTCOME in turn.paid for turn in own] == [False] * (len(own) - 1) + [True]


async def test_a_scenarios_own_terms_count_again_with_source_terms() -> None:
    episodes, reward = await played("e_grpo", "algorithm.reward.source=terms")
    assert not any(OUTCOME in turn.rewards for turn in turns_of(episodes))
    totals = {total_reward(turn.rewards, reward) for turn in turns_of(episodes)}
    assert totals - {0.0, 1.0}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=at_grpo"], "that is of whole episodes"),
        (["algorithm=gdpo"], "with advantage.components: it pays no named term"),
        (["algorithm=action_grpo"], "with advantage.step.value=own: it pays no named term"),
        (["algorithm=spa_rl"], "with reward.model.joins=alone: it pays no named term"),
        (["algorithm=oprl", "algorithm.reward.weights={goal: 2}"], "pays no named term; weigh it with"),
    ],
)
def test_what_would_read_named_terms_is_refused_beside_it(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(["algorithm.reward.source=outcome", *words])


@pytest.mark.parametrize("name", PAID_BY_OUTCOME)
def test_the_printed_command_trains_by_the_papers_reward(name: str) -> None:
    from mas.commands.algorithms import command_of

    words: Any = command_of(name, find_algorithm(name).recipe).split()[2:]
    assert load_config(words).algorithm.reward.source == "outcome"
