"""Comparing inside strata, blended with comparing all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.normalisation import blend, stratified_advantages

GOLDEN = ORACLES["13_stratified_grpo"]
KEYS = ["q"] * 6
ROWS = st.lists(st.tuples(st.sampled_from("pq"), st.integers(0, 2), st.integers(-4, 4).map(float)), min_size=1)


@pytest.mark.parametrize(("alpha", "wanted"), [(1.0, "san"), (0.0, "global_norm"), (0.8, "blend_08")])
def test_stratified_grpo(alpha: float, wanted: str) -> None:
    found = stratified_advantages(GOLDEN["rewards"], KEYS, GOLDEN["strata"], alpha=alpha)
    assert found == near(GOLDEN[wanted])


def test_what_strata_leave_out_is_the_bias_between_them() -> None:
    inside = stratified_advantages(GOLDEN["rewards"], KEYS, GOLDEN["strata"], scale="none")
    assert inside == near(GOLDEN["centred_within"])
    everyone = group_advantages(GOLDEN["rewards"], KEYS, scale="none")
    assert [b - a for a, b in zip(inside, everyone, strict=True)] == near(GOLDEN["cross_stratum_bias"])


@given(rows=ROWS)
def test_the_difference_from_the_group_is_that_from_the_stratum_plus_the_strata_s(rows: Any) -> None:
    # I11: R - mu = (R - mu_k) + (mu_k - mu); the last is the same for all of one stratum and sums to 0 over a group.
    keys, strata, rewards = ([row[column] for row in rows] for column in range(3))
    everyone = group_advantages(rewards, keys, scale="none")
    inside = stratified_advantages(rewards, keys, strata, scale="none")
    bias = [a - b for a, b in zip(everyone, inside, strict=True)]
    for place in set(zip(keys, strata, strict=True)):
        own = [b for b, here in zip(bias, zip(keys, strata, strict=True), strict=True) if here == place]
        assert max(own) == pytest.approx(min(own), abs=1e-9)
    for name in set(keys):
        assert sum(b for b, key in zip(bias, keys, strict=True) if key == name) == pytest.approx(0, abs=1e-9)


@given(rows=ROWS, shift=st.integers(-4, 4), stratum=st.integers(0, 2))
def test_a_shift_of_one_stratum_changes_nothing_inside_strata(rows: Any, shift: int, stratum: int) -> None:
    keys, strata, rewards = ([row[column] for row in rows] for column in range(3))
    moved = [reward + shift * (own == stratum) for reward, own in zip(rewards, strata, strict=True)]
    assert stratified_advantages(moved, keys, strata) == near(stratified_advantages(rewards, keys, strata))


def test_a_stratum_of_one_has_the_groups_share_alone() -> None:
    found = stratified_advantages([1.0, 0.0, 0.0], ["q"] * 3, [0, 1, 1], alpha=0.75)
    assert found == near([0.25 * a for a in group_advantages([1.0, 0.0, 0.0], ["q"] * 3)])


def test_shares_and_lengths_are_checked() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1, not 1\.5"):
        blend([1.0], [1.0], 1.5)
    with pytest.raises(ValueError, match="1 first advantages but 2 second"):
        blend([1.0], [1.0, 2.0], 0.5)
    with pytest.raises(ValueError, match="1 rewards but 2 strata"):
        stratified_advantages([1.0], ["q"], [0, 1])
