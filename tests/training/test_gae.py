"""Advantages of a critic: published numbers, and what must hold for all numbers."""

import json
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.algorithms.parts.advantages.gae import (
    Level,
    bad,
    estimate,
    explained_variance,
    gae,
    split,
    token_rewards,
    whitened,
)
from mas.core.errors import TrainingError

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())
POAD = ORACLES["22_poad"]
# Section 22: two turns of two tokens, paid at the end.
VALUES = [[0.2, 0.3], [0.4, 0.6]]
PAID = [[0.0, 0.0], [0.0, 1.0]]

number = st.floats(-5, 5)
share = st.floats(0, 1)
turns = st.lists(st.lists(st.tuples(number, number), min_size=1, max_size=4), min_size=1, max_size=4)


def near(values: Any) -> Any:
    """The oracles have six decimals."""
    return pytest.approx(values, abs=1e-6)


def flat(values: list[list[float]]) -> list[float]:
    return [*chain.from_iterable(values)]


def test_action_decomposition_as_published() -> None:
    found = bad(PAID, VALUES, gamma=0.95, lam=0.95)
    assert flat(found) == near(flat(POAD["adv_poad"]))
    assert [len(turn) for turn in found] == [2, 2]


def test_over_tokens_each_of_them_is_discounted_as_published() -> None:
    assert gae(flat(PAID), flat(VALUES), gamma=0.95, lam=0.95) == near(flat(POAD["adv_ntpo"]))


def test_over_turns_as_published() -> None:
    # Section 19: delta = 0 + .99 x .6 - .4, 1 - .6; A_0 = .194 + .99 x .95 x .4.
    found = gae([0.0, 1.0], [0.4, 0.6], gamma=0.99, lam=0.95)
    assert found == near(ORACLES["19_turn_ppo"]["turn_gae_099_095"])


@pytest.mark.parametrize(
    ("level", "next_values", "paid"),
    [
        ("token", [[0.9 * 0.3, 0.9 * 0.4], [0.9 * 0.6, 1.0]], [[0.9**3, 0.9**2], [0.9, 1.0]]),
        ("turn", [[0.9 * 0.4], [1.0]], [[0.9], [1.0]]),
    ],
)
def test_a_value_is_to_be_what_is_paid_or_the_next_value(
    level: Level, next_values: list[list[float]], paid: list[list[float]]
) -> None:
    one_step = estimate(PAID, VALUES, level=level, gamma=0.9, lam=0.0)
    assert flat(one_step.targets) == pytest.approx(flat(next_values))
    assert flat(one_step.returns) == pytest.approx(flat(paid))
    assert [len(turn) for turn in one_step.advantages] == [2, 2]
    whole = estimate(PAID, VALUES, level=level, gamma=0.9, lam=1.0)
    assert flat(whole.targets) == pytest.approx(flat(paid))
    assert flat(whole.returns) == pytest.approx(flat(paid))


def test_a_kl_is_paid_token_by_token_and_the_task_on_the_last_as_published() -> None:
    oracle = ORACLES["09_cory"]
    penalties = [0.4 * x for x in (0.01, -0.02, 0.03)]
    assert token_rewards(oracle["shared_reward"], penalties) == near(oracle["ppo_token_rewards"])


@given(st.lists(st.tuples(number, number), min_size=1, max_size=8), share, share)
def test_with_one_token_per_turn_decomposition_is_ordinary_gae(
    steps: list[tuple[float, float]], gamma: float, lam: float
) -> None:
    # Property I9 of section 22.
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    alone = bad([[r] for r in rewards], [[v] for v in values], gamma=gamma, lam=lam)
    assert flat(alone) == pytest.approx(gae(rewards, values, gamma=gamma, lam=lam), abs=1e-9)


@given(turns, share)
def test_without_a_discount_turns_do_not_matter(turned: list[list[tuple[float, float]]], lam: float) -> None:
    rewards = [[r for r, _ in turn] for turn in turned]
    values = [[v for _, v in turn] for turn in turned]
    found = flat(bad(rewards, values, gamma=1.0, lam=lam))
    assert found == pytest.approx(gae(flat(rewards), flat(values), gamma=1.0, lam=lam), abs=1e-9)


@given(st.lists(st.tuples(number, number), min_size=1, max_size=8), share)
def test_with_lambda_one_the_return_is_the_discounted_sum_whatever_the_values(
    steps: list[tuple[float, float]], gamma: float
) -> None:
    rewards, values = [r for r, _ in steps], [v for _, v in steps]
    found = [a + v for a, v in zip(gae(rewards, values, gamma=gamma, lam=1.0), values, strict=True)]
    sums = [sum(gamma**k * r for k, r in enumerate(rewards[at:])) for at in range(len(rewards))]
    assert found == pytest.approx(sums, abs=1e-8)


@given(st.lists(number, min_size=1, max_size=4), st.lists(number, min_size=2, max_size=6), share)
def test_a_longer_last_turn_is_discounted_no_more(first: list[float], second: list[float], gamma: float) -> None:
    # With lambda = 1 the first token's return is gamma x the reward at the end of the second turn, whatever its length.
    rewards = [[0.0] * len(first), [0.0] * (len(second) - 1) + [1.0]]
    advantage = bad(rewards, [first, second], gamma=gamma, lam=1.0)[0][0]
    assert advantage + first[0] == pytest.approx(gamma, abs=1e-8)


def test_whitened_advantages_have_mean_0_and_deviation_1() -> None:
    # Mean 3, sample deviation sqrt(((-2)^2 + 0 + 2^2) / 2) = 2.
    assert whitened([1.0, 3.0, 5.0]) == near([-1.0, 0.0, 1.0])


@pytest.mark.parametrize("same", [[], [0.3], [0.1, 0.1, 0.1]])
def test_equal_advantages_whiten_to_exactly_0(same: list[float]) -> None:
    assert whitened(same) == [0.0] * len(same)


def test_explained_variance() -> None:
    # Returns 0, 2 (variance 1): errors 0.5, 0.5 vary by 0; errors 0, 1 vary by 1/4; errors of V = (2, 0) by 4.
    assert explained_variance([-0.5, 1.5], [0.0, 2.0]) == near(1.0)
    assert explained_variance([0.0, 2.0], [0.0, 4.0]) == near(0.75)
    assert explained_variance([2.0, 0.0], [0.0, 2.0]) == near(-3.0)
    assert explained_variance([1.0, 2.0], [1.0, 1.0]) == 0.0


def test_lists_of_other_lengths_are_refused() -> None:
    with pytest.raises(TrainingError, match="1 rewards but 2 values"):
        gae([1.0], [1.0, 2.0], gamma=1.0, lam=1.0)
    with pytest.raises(TrainingError, match=r"turns of \[2, 2\] rewards and \[2, 1\] values"):
        bad(PAID, [[0.1, 0.2], [0.3]], gamma=1.0, lam=1.0)
    with pytest.raises(TrainingError, match="one token at least"):
        bad([[]], [[]], gamma=1.0, lam=1.0)


def test_split_undoes_joining() -> None:
    assert split([1.0, 2.0, 3.0], [2, 0, 1]) == [[1.0, 2.0], [], [3.0]]
