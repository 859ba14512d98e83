"""What happens to advantages after they were compared: entropy, early tools, inheritance."""

from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.adjustments import (
    confidence,
    early_bonus,
    entropy_scaled,
    modulated_advantages,
    normalised,
)

EMPG, ASPO = ORACLES["16_empg"], ORACLES["30_aspo"]
ENTROPIES = [[0.2, 0.8, 1.4], [0.4, 1.0, 0.2]]
QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)
RAGGED = st.lists(st.lists(st.integers(0, 12).map(lambda n: n / 4), min_size=1, max_size=4), min_size=1, max_size=5)
ANSWERS = st.lists(
    st.tuples(st.sampled_from("pq"), QUARTERS, st.none() | st.integers(0, 200), st.integers(200, 900)), min_size=1
)


def flat(rows: Any) -> list[float]:
    return [value for row in rows for value in row]


def modulated(advantages: list[float], entropies: Any, k: float = 1.0, zeta: float = 0.1) -> list[list[float]]:
    steps = [[advantage] * len(own) for advantage, own in zip(advantages, entropies, strict=False)]
    return modulated_advantages(steps, entropies, sharpness=k, future_sharpness=1.0, future_weight=zeta)


def shaped(rows: Any, delta: float = -2.0, bound: float = 0.7) -> list[float]:
    keys, advantages, positions, lengths = ([row[column] for row in rows] for column in range(4))
    return early_bonus(advantages, positions, lengths, keys, delta=delta, bound=bound)


def test_empg() -> None:
    assert flat(normalised(ENTROPIES)) == near(flat(EMPG["normalised_entropy"]))
    assert flat(confidence(normalised(ENTROPIES), 1.0)) == near(flat(EMPG["scale_g"]))
    found = modulated([1.0, -1.0], ENTROPIES)
    assert flat(found) == near(flat(EMPG["final_zero_mean"]))
    # Before its mean was taken off: the sheet's six values, whose mean is what lies between.
    before = flat(EMPG["modulated"])
    assert [value - fmean(before) for value in before] == near(flat(found))


@given(rows=RAGGED, sharpness=st.sampled_from([0.0, 0.5, 3.0]))
def test_the_scale_has_mean_one(rows: Any, sharpness: float) -> None:
    # I16.
    assert fmean(flat(confidence(normalised(rows), sharpness))) == pytest.approx(1)


@given(rows=RAGGED, shift=QUARTERS)
def test_modulated_advantages_sum_to_zero_and_do_not_see_the_entropys_scale(rows: Any, shift: float) -> None:
    advantages = [float(index % 3) for index in range(len(rows))]
    found = modulated(advantages, rows)
    assert sum(flat(found)) == pytest.approx(0, abs=1e-9)
    stretched = modulated(advantages, [[2 * value + shift for value in row] for row in rows])
    assert flat(stretched) == near(flat(found))


@given(rows=RAGGED)
def test_without_sharpness_and_bonus_only_the_mean_is_taken_off(rows: Any) -> None:
    advantages = [float(index) for index in range(len(rows))]
    mean = fmean([a for a, row in zip(advantages, rows, strict=True) for _ in row])
    wanted = [a - mean for a, row in zip(advantages, rows, strict=True) for _ in row]
    assert flat(modulated(advantages, rows, k=0.0, zeta=0.0)) == near(wanted)


def test_the_bonus_is_for_what_comes_next_and_not_for_the_end() -> None:
    # Two steps of entropy 0 and 1, A = 0: bonus 1 x exp(-1) and 0; less their mean, 0.183940.
    found = modulated([0.0], [[0.0, 1.0]], zeta=1.0)
    assert found[0] == near([0.18394, -0.18394])


def test_equal_entropies_are_all_the_lowest_and_an_empty_batch_is_empty() -> None:
    assert normalised([[0.3, 0.3], [0.3]]) == [[0.0, 0.0], [0.0]]
    assert modulated([], []) == []


def test_aepo_counts_uncertain_tokens_more() -> None:
    assert entropy_scaled([1.0] * 3, [0.5, 1.0, 1.5]) == near(ORACLES["20_aepo"]["entropy_adv"])
    assert entropy_scaled([2.0, -1.0], [0.7, 0.7]) == [2.0, -1.0]


@given(entropies=st.lists(QUARTERS, min_size=1, max_size=8), shift=QUARTERS)
def test_an_entropy_scaled_batch_keeps_its_mean_and_ignores_shifts(entropies: list[float], shift: float) -> None:
    found = entropy_scaled([3.0] * len(entropies), entropies)
    assert fmean(found) == pytest.approx(3)
    assert entropy_scaled([3.0] * len(entropies), [value + shift for value in entropies]) == near(found)


@pytest.mark.parametrize(
    ("advantage", "positions", "wanted"),
    [(1.0, [100, 300], "inside_bound"), (1.0, [100, 1700], "clipped"), (0.0, [100, 300], "all_correct_group")],
)
def test_aspo(advantage: float, positions: list[int], wanted: str) -> None:
    found = shaped([("q", advantage, positions[0], 800), ("q", advantage, positions[1], 1000)])
    assert found == near(ASPO[wanted])


@given(rows=ANSWERS, delta=st.sampled_from([-5.0, -0.5, 2.0]), bound=st.sampled_from([0.0, 0.3, 0.9]))
def test_an_early_bonus_keeps_every_sign_and_its_bound(rows: Any, delta: float, bound: float) -> None:
    # I12.
    for (_, before, position, _), after in zip(rows, shaped(rows, delta, bound), strict=True):
        assert after * before > 0 or after == before == 0
        assert abs(after - before) <= bound * abs(before) + 1e-12
        if position is None:
            assert after == before


@given(rows=ANSWERS, shift=st.integers(0, 50))
def test_an_early_bonus_compares_places_within_a_group(rows: Any, shift: int) -> None:
    moved = [(k, a, p if p is None or k == "p" else p + shift, n) for k, a, p, n in rows]
    assert shaped(moved) == near(shaped(rows))


def test_earlier_gets_more_with_a_negative_delta() -> None:
    early, late, other = shaped([("q", 1.0, 10, 100), ("q", 1.0, 30, 100), ("q", -1.0, None, 100)])
    # 1 -+ 2 x 10 / 100.
    assert (early, late, other) == near((1.2, 0.8, -1.0))


def test_an_early_bonus_must_be_bounded() -> None:
    with pytest.raises(ValueError, match=r"signs are not kept: it is 1\.0"):
        shaped([("q", 1.0, 1, 10)], bound=1.0)
    with pytest.raises(ValueError, match="has length 0"):
        shaped([("q", 1.0, 0, 0), ("q", 1.0, 0, 9)])
    with pytest.raises(ValueError, match="1 advantages but 2 positions"):
        early_bonus([1.0], [1, 2], [9], ["q"], delta=-1.0, bound=0.5)
    # A length of 1 is one; a single place is its own mean.
    assert shaped([("q", 1.0, 0, 1)]) == [1.0]


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="1 advantages but 2 entropies"):
        entropy_scaled([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="1 advantages of trajectories but 2 trajectories with entropies"):
        modulated([1.0], [[1.0], [2.0]])


def test_an_early_bonus_reads_no_place_and_no_length_of_an_answer_that_is_not_eligible() -> None:
    # Places 10 and 30, lengths 100 and 300: 1 -+ 2 x 10 / 200. The long wrong answer would move the mean length to 400.
    early, late, other = shaped([("q", 1.0, 10, 100), ("q", 1.0, 30, 300), ("q", -1.0, None, 800)])
    assert (early, late, other) == near((1.1, 0.9, -1.0))
