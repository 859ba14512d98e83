"""What a step is worth: discounted, cut at mismatches, or as a difference."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.training.advantages.group import group_advantages
from mas.training.advantages.returns import by_distance, differences, matched_returns, returns_to_go

UI_S1, EAPO = ORACLES["36_ui_s1"], ORACLES["35_eapo"]
NUMBERS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=8)
MARKED = st.lists(st.tuples(st.integers(-8, 8).map(lambda n: n / 4), st.booleans()), min_size=1, max_size=8)


@pytest.mark.parametrize(("rewards", "row"), [([0.0, 0.0, 1.0], 0), ([0.0, 0.0, 0.0], 1)])
def test_gigpo_discounts_what_follows(rewards: list[float], row: int) -> None:
    assert returns_to_go(rewards, 0.95) == near(ORACLES["06_gigpo"]["step_returns"][row])


def test_spa_rl_adds_its_fused_rewards_up() -> None:
    golden = ORACLES["17_spa_rl"]
    assert returns_to_go(golden["fused_reward"]) == near(golden["return_to_go_gamma1"])


@pytest.mark.parametrize(("name", "matched"), [("a", [True, True, False, True]), ("b", [True, False, True, True])])
def test_ui_s1_starts_again_behind_a_mismatch(name: str, matched: list[bool]) -> None:
    assert matched_returns(UI_S1[f"rewards_{name}"], matched) == near(UI_S1[f"returns_{name}"])


def test_eapo_pays_early_rounds_of_long_runs_least() -> None:
    # gamma 0.9; runs of 4, 2 and 2 rounds that end with 1, 1 and 0, all in one group.
    rounds = [by_distance(outcome, steps, 0.9) for outcome, steps in ((1.0, 4), (1.0, 2), (0.0, 2))]
    for found, wanted in zip(rounds, EAPO["round_rewards"], strict=True):
        assert found == near(wanted)
    flat = [reward for run in rounds for reward in run]
    assert group_advantages(flat, ["q"] * 8) == near([a for run in EAPO["round_adv"] for a in run])


@given(rewards=NUMBERS, gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_return_is_its_definition(rewards: list[float], gamma: float) -> None:
    wanted = [sum(gamma ** (k - t) * r for k, r in enumerate(rewards) if k >= t) for t in range(len(rewards))]
    assert returns_to_go(rewards, gamma) == near(wanted)


@given(rewards=NUMBERS)
def test_one_outcome_at_the_end_is_paid_by_distance(rewards: list[float]) -> None:
    steps = len(rewards)
    assert by_distance(2.0, steps, 0.5) == near(returns_to_go([0.0] * (steps - 1) + [2.0], 0.5))


@given(marked=MARKED)
def test_where_all_match_matched_returns_are_returns(marked: Any) -> None:
    rewards = [reward for reward, _ in marked]
    assert matched_returns(rewards, [True] * len(rewards), 0.5) == near(returns_to_go(rewards, 0.5))


@given(marked=MARKED, other=st.integers(-8, 8), data=st.data())
def test_no_credit_crosses_a_mismatch(marked: Any, other: int, data: Any) -> None:
    rewards, matched = [r for r, _ in marked], [m for _, m in marked]
    cut = data.draw(st.integers(0, len(rewards) - 1))
    matched[cut] = False
    changed = rewards[:cut] + [reward + other for reward in rewards[cut:]]
    assert matched_returns(rewards, matched)[:cut] == matched_returns(changed, matched)[:cut]
    assert matched_returns(rewards, matched)[cut] == rewards[cut]


@given(values=NUMBERS)
def test_differences_telescope(values: list[float]) -> None:
    assert sum(differences(values)) == pytest.approx(values[-1] - values[0])
    assert len(differences(values)) == len(values) - 1


def test_the_ends_of_the_scale() -> None:
    assert (returns_to_go([]), differences([]), by_distance(1.0, 0, 0.5)) == ([], [], [])
    with pytest.raises(ValueError, match="1 rewards but 2 marks of a match"):
        matched_returns([1.0], [True, False])
