"""Advantages against learned values, over turns, tokens, and tokens inside actions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.training.advantages.critic import action_gae, gae
from mas.training.advantages.returns import returns_to_go

POAD = ORACLES["22_poad"]
VALUES, REWARDS = [[0.2, 0.3], [0.4, 0.6]], [0.0, 1.0]
QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)
STEPS = st.lists(st.tuples(QUARTERS, QUARTERS), min_size=1, max_size=8)
ACTIONS = st.lists(st.tuples(QUARTERS, st.lists(QUARTERS, min_size=1, max_size=4)), min_size=1, max_size=5)


def columns(rows: Any) -> tuple[list[float], Any]:
    return [row[0] for row in rows], [row[1] for row in rows]


def test_poad_discounts_between_actions_only() -> None:
    found = action_gae(VALUES, REWARDS, gamma=0.95, lam=0.95)
    for row, wanted in zip(found, POAD["adv_poad"], strict=True):
        assert row == near(wanted)


def test_discounting_every_token_gives_other_values() -> None:
    # NTPO: one long chain of tokens, the rewards on the last of each action.
    found = gae([0.0, 0.0, 0.0, 1.0], [0.2, 0.3, 0.4, 0.6], gamma=0.95, lam=0.95)
    assert found == near([value for row in POAD["adv_ntpo"] for value in row])


def test_turn_ppo_gives_one_advantage_per_turn() -> None:
    assert gae([0.0, 1.0], [0.4, 0.6], gamma=0.99, lam=0.95) == near(ORACLES["19_turn_ppo"]["turn_gae_099_095"])


@given(rows=STEPS, bootstrap=QUARTERS, lam=st.sampled_from([0.0, 0.5, 1.0]))
def test_one_token_per_action_is_the_sum_of_discounted_surprises(rows: Any, bootstrap: float, lam: float) -> None:
    # I9: A_t = sum over k of (gamma lam)^k delta_(t+k).
    gamma = 0.5
    rewards, values = columns(rows)
    after = [*values[1:], bootstrap]
    deltas = [r + gamma * b - v for r, v, b in zip(rewards, values, after, strict=True)]
    wanted = [
        sum((gamma * lam) ** (k - t) * delta for k, delta in enumerate(deltas) if k >= t) for t in range(len(rows))
    ]
    found = action_gae([[value] for value in values], rewards, gamma=gamma, lam=lam, bootstrap=bootstrap)
    assert [row[0] for row in found] == near(wanted)
    assert gae(rewards, values, gamma=gamma, lam=lam, bootstrap=bootstrap) == near(wanted)


@given(rows=STEPS)
def test_with_lambda_one_it_is_the_return_less_the_value(rows: Any) -> None:
    rewards, values = columns(rows)
    wanted = [g - v for g, v in zip(returns_to_go(rewards, 0.5), values, strict=True)]
    assert gae(rewards, values, gamma=0.5, lam=1.0) == near(wanted)


@given(rows=ACTIONS)
def test_wording_does_not_change_the_horizon(rows: Any) -> None:
    # With lambda 1, A + V of an action's first token is its return, however many tokens say it.
    rewards, values = columns(rows)
    found = action_gae(values, rewards, gamma=0.5, lam=1.0)
    firsts = [row[0] + own[0] for row, own in zip(found, values, strict=True)]
    assert firsts == near(returns_to_go(rewards, 0.5))
    assert [len(row) for row in found] == [len(own) for own in values]


def test_comas_adds_up_what_is_paid_from_each_token_on() -> None:
    # Reward 1 on the last token, less 0.01 x log ratios 0.1, 0.2, -0.1.
    assert returns_to_go([-0.001, -0.002, 1.001]) == near(ORACLES["08_comas"]["token_adv"])


def test_actions_without_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match=r"actions \[1\] have no token"):
        action_gae([[0.0], []], [0.0, 1.0], gamma=1.0, lam=1.0)
    with pytest.raises(ValueError, match="1 actions with values but 2 rewards"):
        action_gae([[0.0]], [0.0, 1.0], gamma=1.0, lam=1.0)
