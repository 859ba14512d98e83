"""What a step is worth: discounted, or as a difference."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.steps import differences, returns_to_go

NUMBERS = st.lists(st.integers(-8, 8).map(lambda n: n / 4), min_size=1, max_size=8)


@pytest.mark.parametrize(("rewards", "row"), [([0.0, 0.0, 1.0], 0), ([0.0, 0.0, 0.0], 1)])
def test_gigpo_discounts_what_follows(rewards: list[float], row: int) -> None:
    assert returns_to_go(rewards, 0.95) == near(ORACLES["06_gigpo"]["step_returns"][row])


def test_spa_rl_adds_its_fused_rewards_up() -> None:
    golden = ORACLES["17_spa_rl"]
    assert returns_to_go(golden["fused_reward"]) == near(golden["return_to_go_gamma1"])


@given(rewards=NUMBERS, gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_a_return_is_its_definition(rewards: list[float], gamma: float) -> None:
    wanted = [sum(gamma ** (k - t) * r for k, r in enumerate(rewards) if k >= t) for t in range(len(rewards))]
    assert returns_to_go(rewards, gamma) == near(wanted)


@given(values=NUMBERS)
def test_differences_telescope(values: list[float]) -> None:
    assert sum(differences(values)) == pytest.approx(values[-1] - values[0])
    assert len(differences(values)) == len(values) - 1


def test_the_ends_of_the_scale() -> None:
    assert (returns_to_go([]), differences([])) == ([], [])
