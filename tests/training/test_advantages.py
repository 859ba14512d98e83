"""Properties of group comparison that hold for all rewards."""

from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.algorithms.parts.advantages.group import group_advantages, group_statistics

REWARDS = st.lists(st.tuples(st.sampled_from("abc"), st.floats(-4, 4, width=16)), min_size=1, max_size=24)


@given(rows=REWARDS, other=st.floats(-4, 4))
def test_a_group_depends_on_its_own_members_alone(rows: list[tuple[str, float]], other: float) -> None:
    keys = [key for key, _ in rows]
    before = group_advantages([reward for _, reward in rows], keys)
    after = group_advantages([reward if key == "a" else other + reward for key, reward in rows], keys)
    for key, first, second in zip(keys, before, after, strict=True):
        if key == "a":
            assert first == second


@given(rows=REWARDS)
def test_advantages_are_centred_ordered_and_of_unit_spread(rows: list[tuple[str, float]]) -> None:
    keys = [key for key, _ in rows]
    advantages = group_advantages([reward for _, reward in rows], keys)
    for name in set(keys):
        pairs = sorted((reward, a) for (key, reward), a in zip(rows, advantages, strict=True) if key == name)
        values = [a for _, a in pairs]
        assert fmean(values) == pytest.approx(0, abs=1e-6)
        assert values == sorted(values)
        if len({reward for reward, _ in pairs}) == 1:
            assert values == [0.0] * len(values)
        elif stdev([reward for reward, _ in pairs]) > 1e-2:
            assert stdev(values) == pytest.approx(1, abs=1e-3)


@given(rows=REWARDS)
def test_leave_one_out_compares_with_the_mean_of_the_others(rows: list[tuple[str, float]]) -> None:
    keys = [key for key, _ in rows]
    advantages = group_advantages([r for _, r in rows], keys, baseline="leave_one_out", scale="none")
    for index, (key, reward) in enumerate(rows):
        others = [r for i, (k, r) in enumerate(rows) if k == key and i != index]
        assert advantages[index] == pytest.approx(reward - fmean(others) if others else 0.0, abs=1e-9)


def test_statistics_count_groups_by_what_they_teach() -> None:
    # Groups a [0, 1]: std 0.7071; b [2, 2]: none; c [5]: one alone.
    found = group_statistics([0.0, 1.0, 2.0, 2.0, 5.0], ["a", "a", "b", "b", "c"])
    assert (found.groups, found.single, found.zero_variance) == (3, 1, 1)
    assert found.spread == pytest.approx((0.5**0.5 + 0) / 2)


def test_a_missing_key_is_refused() -> None:
    with pytest.raises(ValueError, match="2 rewards but 1 group keys"):
        group_advantages([1.0, 2.0], ["a"])
