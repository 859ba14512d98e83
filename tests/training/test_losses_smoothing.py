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

from mas.training.losses.correction import bias_correction, clipping_bias
from mas.training.losses.entropy_history import EntropyHistory
from mas.training.losses.policy import clipped_loss
from mas.training.losses.ratios import shared_ratio
from mas.training.losses.smoothing import band_hinge, band_penalty, smoothed_entropy_loss
from mas.training.schedules import PhaseWeight

EPO, TURN = ORACLES["15_epo"], ORACLES["19_turn_ppo"]
BAND: dict[str, float] = {"low": 0.0, "high": 2.0}
CLIP: dict[str, float | None] = {"clip_low": 0.2, "clip_high": 0.2}


def doubles(values: Any, *, grad: bool = False) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def test_the_published_penalty_has_its_value_and_no_gradient() -> None:
    entropy_J, usual_J = doubles([0.2, 0.5, 2.5], grad=True), doubles([0.8] * 3)
    penalty_J = band_penalty(entropy_J, usual_J, alpha=0.1, **BAND)
    assert penalty_J.tolist() == near(EPO["token_penalty"])
    assert not penalty_J.requires_grad
    loss = smoothed_entropy_loss(entropy_J, penalty_J, coefficient=0.001, smoothing=PhaseWeight(epochs=150)(0)).mean()
    assert loss.item() == near(EPO["added_to_pg_loss_beta1"])
    # What is left is the gradient of the plain entropy bonus, the same inside the band and outside.
    (gradient_J,) = torch.autograd.grad(loss, entropy_J)
    assert gradient_J.tolist() == pytest.approx([-0.001 / 3] * 3)


def test_the_hinge_has_a_gradient_that_pulls_back_into_the_band() -> None:
    entropy_J = doubles([0.2, 0.5, 2.5], grad=True)
    hinge_J = band_hinge(entropy_J, doubles([0.8] * 3), **BAND)
    assert hinge_J.tolist() == near(EPO["differentiable_hinge_alternative"])
    loss = smoothed_entropy_loss(entropy_J, hinge_J, coefficient=0.001, smoothing=3.0).sum()
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
def test_both_penalties_are_zero_inside_the_band_alone(entropy: float, usual: float, low: float, wide: float) -> None:
    band = {"low": low, "high": 1 + wide}
    hinge = band_hinge(doubles([entropy]), doubles([usual]), **band).item()
    step = band_penalty(doubles([entropy]), doubles([usual]), alpha=0.1, **band).item()
    is_inside = low * usual < entropy < (1 + wide) * usual
    assert step == (0 if is_inside else 0.1)
    assert hinge >= 0
    if is_inside:
        assert hinge == 0


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


def test_the_correction_is_one_over_one_plus_what_clipping_takes_from_the_row() -> None:
    # A = 2. Row 0: rho 1.5 is 0.3 beyond 1.2, rho 1 is not: b = 2 x 0.3 / 2 = 0.3. Row 1: rho 0.5 is no use to a good
    # turn, so that its bound does not hold it.
    ratio_J, row_J = doubles([1.5, 1.0, 0.5]), torch.tensor([0, 0, 1])
    found_J = bias_correction(ratio_J, doubles([2.0] * 3), row_J, **CLIP)
    assert found_J.tolist() == pytest.approx([1 / 1.3, 1 / 1.3, 1.0])
    # A = -2: rho 0.5 is 0.3 below 0.8, rho 1.5 is not held. b = 0 and 0.6.
    assert bias_correction(ratio_J, doubles([-2.0] * 3), row_J, **CLIP).tolist() == pytest.approx([1, 1, 1 / 1.6])


def test_the_bias_is_the_difference_of_the_surrogates() -> None:
    # max(-A rho, -A clip(rho)) + A rho, per token, is what the clip takes.
    ratio_J, advantage_J = doubles([1.5, 0.4, 1.1, 0.9]), doubles([1.0, -2.0, 3.0, -1.0])
    clipped_J = clipped_loss(ratio_J, advantage_J, dual_clip=None, **CLIP)
    found_J = clipping_bias(ratio_J, advantage_J, torch.arange(4), **CLIP)
    assert found_J.tolist() == pytest.approx((clipped_J + advantage_J * ratio_J).tolist())


def test_without_bounds_nothing_is_corrected() -> None:
    ratio_J, row_J = doubles([9.0, 0.1]), torch.tensor([0, 0])
    for advantage in (1.0, -1.0):
        weight_J = bias_correction(ratio_J, doubles([advantage] * 2), row_J, clip_low=None, clip_high=None)
        assert weight_J.tolist() == [1, 1]


def test_the_correction_has_no_gradient_and_the_corrected_loss_has_a_smaller_one() -> None:
    ratio_J, row_J = doubles([1.5, 1.1], grad=True), torch.tensor([0, 0])
    advantage_J = doubles([1.0, 1.0])
    weight_J = bias_correction(ratio_J, advantage_J, row_J, **CLIP)
    assert not weight_J.requires_grad
    loss_J = weight_J * clipped_loss(ratio_J, advantage_J, dual_clip=None, **CLIP)
    (gradient_J,) = torch.autograd.grad(loss_J.sum(), ratio_J)
    # b = 0.3 / 2: the token within the bounds has -A / 1.15, the other none.
    assert gradient_J.tolist() == pytest.approx([0.0, -1 / 1.15])


@given(
    shifts=st.lists(st.floats(-3, 3), min_size=1, max_size=6),
    advantage=st.floats(-4, 4),
    further=st.floats(0, 2),
)
def test_a_row_further_out_weighs_less_and_another_row_does_not_matter(
    shifts: list[float], advantage: float, further: float
) -> None:
    row_J = torch.tensor([0] * len(shifts) + [1])
    ratio_J = doubles([*(math.exp(shift) for shift in shifts), 1.5])
    advantage_J = doubles([advantage] * len(shifts) + [1.0])
    before_J = bias_correction(ratio_J, advantage_J, row_J, **CLIP)
    pushed_J = ratio_J.clone()
    pushed_J[0] = ratio_J[0] * math.exp(math.copysign(further, advantage))
    after_J = bias_correction(pushed_J, advantage_J, row_J, **CLIP)
    assert bool((before_J > 0).all() and (before_J <= 1).all())
    assert after_J[0] <= before_J[0] + 1e-12
    assert after_J[-1] == before_J[-1] == pytest.approx(1 / 1.3)


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
