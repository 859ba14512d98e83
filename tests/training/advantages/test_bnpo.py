"""BNPO against the paper's formula, computed by another library, and its two special cases."""

import math

import pytest
import torch
from parts import make_turn
from pydantic import ValidationError

from mas.algorithms.base import Row
from mas.algorithms.bnpo import BnpoOptions, advantages, shape_of, weight
from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.config.custom_algorithm import method_of
from mas.config.load import load_config
from mas.core.errors import ConfigError, TrainingError
from mas.core.records import Turn


def rows_of(groups: dict[str, tuple[float, ...]], agent: str = "planner") -> list[Row]:
    """Rows of one turn each, whose group is the key."""
    return [
        Row(turns=(make_turn(agent=agent, id=f"{agent}{key}{n}"),), reward=reward, group=(agent, key))
        for key, rewards in groups.items()
        for n, reward in enumerate(rewards)
    ]


EASY_AND_HARD = {"hard": (1.0, 0.0, 0.0, 0.0), "easy": (1.0, 1.0, 1.0, 0.0), "lost": (0.0, 0.0, 0.0, 0.0)}


def test_it_is_the_papers_formula() -> None:
    rates = torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64)
    total = rates.mean() * (1 - rates.mean()) / rates.var() - 1
    alpha, beta = (1 + total * share / 3 for share in (rates.mean(), 1 - rates.mean()))
    assert min(alpha, beta) > 1
    density = torch.distributions.Beta(alpha, beta).log_prob(rates[:2]).exp()
    expected = [
        *((reward - 0.25) / density[0].item() for reward in EASY_AND_HARD["hard"]),
        *((reward - 0.75) / density[1].item() for reward in EASY_AND_HARD["easy"]),
        *(0.0 for _ in EASY_AND_HARD["lost"]),
    ]
    assert advantages(rows_of(EASY_AND_HARD), BnpoOptions()) == pytest.approx(expected, rel=1e-9)


def test_a_fitted_distribution_has_the_mean_and_the_variance_of_the_rates() -> None:
    rates = [0.1, 0.3, 0.4, 0.7]
    alpha, beta = shape_of(rates)
    fitted = torch.distributions.Beta(*(torch.tensor(3 * (one - 1), dtype=torch.float64) for one in (alpha, beta)))
    assert fitted.mean.item() == pytest.approx(torch.tensor(rates).mean().item())
    assert fitted.variance.item() == pytest.approx(torch.tensor(rates).var().item())


@pytest.mark.parametrize(
    "rates", [[0.4], [0.4, 0.4], [0.0, 1.0, 0.0, 1.0]], ids=["one", "equal", "all of a group alike"]
)
def test_where_the_rates_show_no_peak_it_is_reinforce_with_a_baseline(rates: list[float]) -> None:
    assert shape_of(rates) == (1.0, 1.0)
    assert [weight(rate, 1.0, 1.0) for rate in (0.01, 0.5, 0.99)] == [1.0] * 3


def test_with_both_parameters_at_a_half_more_than_one_it_divides_as_grpo_does() -> None:
    for rate in (0.05, 0.3, 0.5, 0.9):
        # The density is sqrt(p (1 - p)), the standard deviation of a success, over the area pi / 8.
        assert weight(rate, 1.5, 1.5) * math.sqrt(rate * (1 - rate)) == pytest.approx(math.pi / 8)


def test_rates_that_differ_by_rounding_are_equal() -> None:
    for groups in ({"a": (0.1, 0.7), "b": (0.2, 0.6), "c": (0.3, 0.5)}, {"a": (0.2, 0.4), "b": (0.3, 0.3)}):
        expected = [reward - sum(own) / len(own) for own in groups.values() for reward in own]
        assert advantages(rows_of(groups), BnpoOptions()) == pytest.approx(expected)


def test_rows_are_compared_with_their_group_whoever_is_in_it() -> None:
    rows = [
        Row(turns=(make_turn(agent=f"worker[{number}]"),), reward=reward, group=group)
        for group, rewards in (("a", (1.0, 0.0, 0.0)), ("b", (1.0, 1.0, 0.0)))
        for number, reward in enumerate(rewards)
    ]
    found = advantages(rows, BnpoOptions())
    assert found == pytest.approx(advantages(rows_of({"a": (1.0, 0.0, 0.0), "b": (1.0, 1.0, 0.0)}), BnpoOptions()))
    assert found[0] > 0 > found[1] == found[2]


def test_agents_have_distributions_of_their_own() -> None:
    planner, executor = rows_of(EASY_AND_HARD), rows_of({"one": (1.0, 1.0, 1.0, 0.0)}, agent="executor")
    together = advantages([*planner, *executor], BnpoOptions())
    assert together[: len(planner)] == advantages(planner, BnpoOptions())
    assert together[len(planner) :] == [0.25, 0.25, 0.25, -0.75]


def test_rewards_of_another_range_are_mapped_to_the_papers() -> None:
    paid = {key: tuple(2 * reward - 1 for reward in rewards) for key, rewards in EASY_AND_HARD.items()}
    found = advantages(rows_of(paid), BnpoOptions(low=-1.0, high=1.0))
    assert found == pytest.approx(advantages(rows_of(EASY_AND_HARD), BnpoOptions()))


def test_a_reward_outside_of_the_range_says_what_to_set() -> None:
    with pytest.raises(
        TrainingError,
        match=r"algorithm=bnpo: a reward of -1 is not between algorithm\.options\.low=0 and \.high=1: set",
    ):
        advantages(rows_of({"one": (1.0, -1.0)}), BnpoOptions())
    assert advantages(rows_of({"one": (1.0 + 1e-12, -1e-12)}), BnpoOptions()) == pytest.approx([0.5, -0.5])
    with pytest.raises(ConfigError, match=r"algorithm\.options: low=2 must be below high=1"):
        load_config(["algorithm=bnpo", "scenario=relay", "algorithm.options.low=2"])
    with pytest.raises(ValidationError, match="finite"):
        BnpoOptions(low=-math.inf)
    with pytest.raises(ValidationError, match="low=1 must be below high=1"):
        BnpoOptions(low=1.0)


def test_by_its_name_episodes_are_compared_by_their_outcome() -> None:
    options = load_config(["algorithm=bnpo", "scenario=relay"]).algorithm
    method = method_of(options)
    assert method is not None
    turns: list[Turn] = [
        make_turn(trajectory=f"{n}", id=f"{n}/{turn}", turn=turn, rewards={"outcome": float(won), "own.valid": -5.0})
        for n, won in enumerate((True, False, False, False))
        for turn in range(2)
    ]
    found = turn_advantages(turns, options.reward, options.advantage, own=method.advantages)
    assert found == [0.75, 0.75, *[-0.25] * 6]
