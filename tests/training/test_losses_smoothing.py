"""EPO's entropy smoothing, turn ratios and the correction of clipping: sections 15, 19 and 21 of the formula sheet."""

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near
from torch import Tensor

from mas.algorithms.parts.losses.policy import (
    band_hinge,
    bias_correction,
    bias_norm,
    clipped_loss,
    shared_ratio,
    taken_loss,
)
from mas.training.updates.policy_gradient import EntropyHistory

EPO, TURN = ORACLES["15_epo"], ORACLES["19_turn_ppo"]
BAND: dict[str, float] = {"low": 0.0, "high": 2.0}
CLIP: dict[str, float | None] = {"clip_low": 0.2, "clip_high": 0.2}


def doubles(values: Any, *, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def test_the_hinge_has_a_gradient_that_pulls_back_into_the_band() -> None:
    entropy_J = doubles([0.2, 0.5, 2.5], grad=True)
    hinge_J = band_hinge(entropy_J, doubles([0.8] * 3), **BAND)
    assert hinge_J.tolist() == near(EPO["differentiable_hinge_alternative"])
    loss = (-0.001 * (entropy_J - 3.0 * hinge_J)).sum()
    (gradient_J,) = torch.autograd.grad(loss, entropy_J)
    # -0.001 from the bonus; + 0.003 above the band: there the loss falls with the entropy.
    assert gradient_J.tolist() == pytest.approx([-0.001, -0.001, 0.002])


def test_below_the_band_the_hinge_raises_entropy() -> None:
    entropy_J, usual_J = doubles([0.1, 0.5, 0.9], grad=True), doubles([0.5] * 3, grad=True)
    hinge_J = band_hinge(entropy_J, usual_J, low=0.5, high=1.5)
    assert hinge_J.tolist() == pytest.approx([0.15, 0.0, 0.15])
    entropy_gradient_J, usual_gradient_J = torch.autograd.grad(hinge_J.sum(), (entropy_J, usual_J), allow_unused=True)
    assert entropy_gradient_J.tolist() == [-1, 0, 1]
    assert usual_gradient_J is None


@given(entropy=st.floats(0, 5), usual=st.floats(0.01, 5), low=st.floats(0, 1), wide=st.floats(0, 2))
def test_the_penalty_is_zero_inside_the_band_alone(entropy: float, usual: float, low: float, wide: float) -> None:
    band = {"low": low, "high": 1 + wide}
    hinge = band_hinge(doubles([entropy]), doubles([usual]), **band).item()
    is_inside = low * usual <= entropy <= (1 + wide) * usual
    assert hinge >= 0
    assert is_inside is (hinge == 0)


# Section 19: two turns of 3 and 2 tokens.
SHIFTS, ROWS = [0.1, 0.1, 0.1, -0.3, 0.1], [0, 0, 0, 1, 1]


def test_a_turn_ratio_may_be_within_bounds_that_a_token_is_beyond() -> None:
    logprobs_J, row_J = doubles([-1.0] * 5), torch.tensor(ROWS)
    turn_J = shared_ratio(doubles(SHIFTS), logprobs_J, row_J)
    assert turn_J[[0, 3]].tolist() == near(TURN["turn_ratio"])
    assert turn_J[[0, 3]].clamp(0.8, 1.2).tolist() == near(TURN["turn_ratio_clipped_02"])
    token_J = doubles(SHIFTS).exp()
    assert token_J.tolist() == near([value for turn in TURN["token_ratio"] for value in turn])
    outside_J = ((token_J < 0.8) | (token_J > 1.2)).double()
    assert [outside_J[:3].mean().item(), outside_J[3:].mean().item()] == TURN["token_clipped_fraction"]


def test_turn_ratios_of_at2po() -> None:
    # Turns of one and of two tokens with mean log-ratios of 0.003 and -0.004.
    ratio_J = shared_ratio(doubles([0.003, -0.01, 0.002]), doubles([-1.0] * 3), torch.tensor([0, 1, 1]))
    wanted = ORACLES["21_at2po"]["turn_ratio"]
    assert ratio_J.tolist() == near([wanted["t0"], wanted["t1"], wanted["t1"]])


def test_the_bias_is_the_gradient_that_clipping_takes_and_the_rest_keeps_its_own() -> None:
    # A = 1, 1, -2, -1: rho 1.5 and 0.4 are beyond the bound that holds them, 1.1 and 0.9 are not.
    ratio_J, advantage_J = doubles([1.5, 1.1, 0.4, 0.9], grad=True), doubles([1.0, 1.0, -2.0, -1.0])
    taken_J = taken_loss(ratio_J, advantage_J, **CLIP)
    (gradient_J,) = torch.autograd.grad(taken_J.sum(), ratio_J)
    assert gradient_J.tolist() == [-1.0, 0.0, 2.0, 0.0]
    clipped_J = clipped_loss(ratio_J, advantage_J, dual_clip=None, **CLIP)
    (kept_J,) = torch.autograd.grad(clipped_J.sum(), ratio_J)
    assert (gradient_J + kept_J).tolist() == (-advantage_J).tolist(), "together they are the unclipped gradient"


@given(shifts=st.lists(st.floats(-3, 3), min_size=1, max_size=6), advantage=st.floats(-4, 4))
def test_without_bounds_clipping_takes_nothing(shifts: list[float], advantage: float) -> None:
    ratio_J = doubles([math.exp(shift) for shift in shifts])
    advantage_J = doubles([advantage] * len(shifts))
    assert not taken_loss(ratio_J, advantage_J, clip_low=None, clip_high=None).any()


def test_an_update_is_divided_by_one_and_the_norm_of_its_bias() -> None:
    assert bias_norm([doubles([3.0]), doubles([[0.0, 4.0]])]) == 5.0
    assert bias_norm([]) == 0.0
    assert [bias_correction(norm) for norm in (0.0, 1.0, 3.0)] == [1.0, 0.5, 0.25]


@given(turns=st.lists(st.tuples(st.integers(0, 3), st.lists(st.floats(0, 5), max_size=4)), max_size=9))
def test_the_history_is_the_mean_of_all_tokens_of_a_step_and_survives_a_checkpoint(
    turns: list[tuple[int, list[float]]],
) -> None:
    history, resumed = EntropyHistory(), EntropyHistory()
    for step, entropies in turns:
        history.add(step, entropies)
    resumed.restore(json.loads(json.dumps(history.state())))
    for step in range(4):
        of_step = [value for other, entropies in turns for value in entropies if other == step]
        wanted = pytest.approx(sum(of_step) / len(of_step)) if of_step else None
        assert history.usual(step) == wanted
        assert resumed.usual(step) == history.usual(step)


@pytest.mark.parametrize(("step", "entropy"), [(-1, 0.5), (0, -0.5), (0, math.nan)])
def test_entropies_that_cannot_be_are_refused(step: int, entropy: float) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        EntropyHistory().add(step, [entropy])
