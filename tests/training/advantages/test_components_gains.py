"""Parts that normalise several quantities by themselves: reward components, and information gains beside outcomes."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.normalisation import component_advantages, whiten
from mas.algorithms.parts.advantages.steps import differences, gain_advantages, returns_to_go

IGPO = ORACLES["14_igpo"]
LOGPROBS, OUTCOMES = [[-2.0, -1.5, -0.5], [-2.0, -2.2, -1.8]], [1.0, 0.0]
TERMS = {"accuracy": [1.0, 0.0, 1.0, 0.0], "format": [1.0, 1.0, 0.0, 1.0]}
QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)
TRAJECTORIES = st.lists(
    st.tuples(st.sampled_from("pq"), QUARTERS, st.lists(QUARTERS, min_size=1, max_size=4)), min_size=1, max_size=6
)


def flat(rows: Any) -> list[float]:
    return [value for row in rows for value in row]


def test_gdpo_tells_a_right_answer_in_bad_form_from_a_wrong_one_in_good_form() -> None:
    found = component_advantages(TERMS, ["q"] * 4, {})
    assert found == near(ORACLES["28_baselines"]["gdpo_sum_then_whiten"])
    summed = [sum(row) for row in zip(*TERMS.values(), strict=True)]
    assert group_advantages(summed, ["q"] * 4)[1] == group_advantages(summed, ["q"] * 4)[2]


def test_a_component_may_be_weighted_whitened_by_agent() -> None:
    keys = ["q"] * 4
    accuracy, form = (group_advantages(values, keys) for values in TERMS.values())
    weighted = [2 * a + 0.5 * f for a, f in zip(accuracy, form, strict=True)]
    found = component_advantages(TERMS, keys, {"accuracy": 2, "format": 0.5}, buffers=[0, 0, 1, 1])
    assert found == near(whiten(weighted, [0, 0, 1, 1]))
    once = component_advantages(TERMS, keys, {"accuracy": 2, "format": 1})
    assert component_advantages(TERMS, keys, {"accuracy": 2}) == once


@given(values=st.lists(QUARTERS, min_size=2, max_size=8), factor=st.sampled_from([0.5, 2.0, 64.0]))
def test_a_components_own_scale_does_not_matter(values: list[float], factor: float) -> None:
    # Terms of equal weight may cancel, and rounding would be whitened.
    keys, other = ["q"] * len(values), [float(index % 2) for index in range(len(values))]
    small = component_advantages({"one": values, "two": other}, keys, {"two": 0.25})
    large = component_advantages({"one": [factor * value for value in values], "two": other}, keys, {"two": 0.25})
    assert large == pytest.approx(small, abs=2e-3)


def test_components_that_never_differ_teach_nothing() -> None:
    assert component_advantages({"one": [2.0] * 3, "two": [1.0] * 3}, ["q"] * 3, {}) == [0.0] * 3


def test_components_and_weights_must_fit() -> None:
    with pytest.raises(ValueError, match=r"given for \['tests'\], but the reward's components are \['one'\]"):
        component_advantages({"one": [1.0]}, ["q"], {"tests": 1.0})
    with pytest.raises(ValueError, match=r"components are \[\]"):
        component_advantages({}, [], {})
    with pytest.raises(ValueError, match="1 group keys but 2 rewards of one"):
        component_advantages({"one": [1.0, 2.0]}, ["q"], {})


def test_igpo_normalises_gains_and_outcomes_by_themselves() -> None:
    gains = [differences(row) for row in LOGPROBS]
    assert flat(gains) == near(flat(IGPO["info_gain_log"]))
    assert group_advantages(flat(gains), ["q"] * 4) == near(flat(IGPO["z_info_gain"]))
    assert group_advantages(OUTCOMES, ["q"] * 2) == near(IGPO["z_outcome"])


@pytest.mark.parametrize(("gamma", "wanted"), [(1.0, "turn_adv_gamma1"), (0.9, "turn_adv_gamma09")])
def test_igpo(gamma: float, wanted: str) -> None:
    found = gain_advantages(LOGPROBS, OUTCOMES, ["q", "q"], gamma=gamma)
    assert [len(row) for row in found] == [3, 3]
    assert flat(found) == near(flat(IGPO[wanted]))


def test_gains_are_not_discounted_unless_asked_for() -> None:
    assert flat(gain_advantages(LOGPROBS, OUTCOMES, ["q", "q"])) == near(flat(IGPO["turn_adv_gamma1"]))


def test_gains_are_of_log_probabilities_and_not_of_probabilities() -> None:
    # What the first version's code does gives other gains.
    first = [differences([math.exp(value) for value in row]) for row in LOGPROBS]
    assert flat(first) == near(flat(IGPO["info_gain_prob_v1"]))
    # Nor are returns less their mean at each position of the tokens, as that code has it.
    returns = [returns_to_go(row, 1.0) for row in ([0.1, 0.4, 1.0], [-0.1, 0.1, 0.0])]
    positions = [0, 1, 2, 0, 1, 2]
    assert group_advantages(flat(returns), positions, scale="none") == near(flat(IGPO["published_code_position_mean"]))
    assert gain_advantages(LOGPROBS, OUTCOMES, ["q", "q"])[0] != near(IGPO["published_code_position_mean"][0])


@given(rows=TRAJECTORIES)
def test_raw_gains_telescope(rows: Any) -> None:
    # I7.
    for _, _, logprobs in rows:
        assert sum(differences(logprobs)) == pytest.approx(logprobs[-1] - logprobs[0])


@given(rows=TRAJECTORIES, shift=QUARTERS)
def test_neither_a_shift_of_outcomes_nor_of_a_trajectorys_logprobs_changes_anything(rows: Any, shift: float) -> None:
    keys, outcomes, logprobs = ([row[column] for row in rows] for column in range(3))
    plain = gain_advantages(logprobs, outcomes, keys)
    moved = [[value + shift * index for value in row] for index, row in enumerate(logprobs)]
    shifted = gain_advantages(moved, [outcome + shift for outcome in outcomes], keys)
    assert flat(shifted) == near(flat(plain))


@given(rows=TRAJECTORIES)
def test_a_trajectorys_length_gives_its_outcome_no_more_weight(rows: Any) -> None:
    # Last turns hold outcomes alone, once per trajectory.
    keys, outcomes, logprobs = ([row[column] for row in rows] for column in range(3))
    found = gain_advantages(logprobs, outcomes, keys, gamma=0.5)
    assert [row[-1] for row in found] == group_advantages(outcomes, keys)
    assert [len(row) for row in found] == [len(row) for row in logprobs]


def test_a_trajectory_without_its_start_is_refused() -> None:
    with pytest.raises(ValueError, match=r"trajectories \[1\] have no probability"):
        gain_advantages([[0.0], []], [1.0, 0.0], ["q", "q"])
    with pytest.raises(ValueError, match="1 trajectories with probabilities but 2 outcomes"):
        gain_advantages([[0.0]], [1.0, 0.0], ["q", "q"])
