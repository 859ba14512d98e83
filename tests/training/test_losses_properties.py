"""What holds for every loss: on policy, at each level of the ratio, in any order of tokens, at extremes."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from signals import gradient_of, losses_of, signals_of
from torch import Tensor

from mas.algorithms.parts.losses.policy import kl, kl_penalty, outside_share, segment_mean
from mas.algorithms.parts.losses.tokens import Signals
from mas.core.errors import TrainingError

SURROGATES = ("clip", "keep_gradient", "cispo", "gmpo", "sapo")
RATIOS = ("token", "turn", "sequence")
COMBINATIONS: list[dict[str, Any]] = [
    {"surrogate": surrogate, "ratio": ratio}
    for surrogate in SURROGATES
    for ratio in RATIOS
    if surrogate != "gmpo" or ratio == "token"
]
LEVELLED = [options for options in COMBINATIONS if options["surrogate"] != "gmpo" and options["ratio"] == "turn"]
SHIFTS = [0.3, -0.4, 0.1, 0.05, -0.2, 0.6]
ADVANTAGES = [1.5, 1.5, 1.5, -0.5, -0.5, -0.5]
ROWS = [0, 0, 0, 1, 1, 1]


def name(options: dict[str, Any]) -> str:
    return "-".join(options.values())


def every(signals: Signals, options: dict[str, Any]) -> dict[str, list[float]]:
    """All numbers of all tokens, gradients of their sum included."""
    losses = losses_of(signals, **options)
    found = {key: value_J.tolist() for key, value_J in losses.values.items()}
    return found | {"loss": losses.loss_J.tolist(), "gradient": gradient_of(signals, **options)}


def same(one: dict[str, list[float]], other: dict[str, list[float]]) -> None:
    assert one.keys() == other.keys()
    for key, values in one.items():
        assert values == pytest.approx(other[key], abs=1e-12), key


@pytest.mark.parametrize("options", COMBINATIONS, ids=name)
def test_on_policy_the_gradient_of_the_sum_is_minus_the_advantage_at_every_token(options: dict[str, Any]) -> None:
    signals = signals_of([0.0] * 6, ADVANTAGES, logprobs=[-0.1, -2.0, -1.0, -0.5, -3.0, -1.0], rows=ROWS)
    assert gradient_of(signals, **options) == pytest.approx([-value for value in ADVANTAGES])
    assert losses_of(signals, **options).values["ratio"].tolist() == [1] * 6
    assert losses_of(signals, **options).values["clip_fraction"].sum() == 0


@pytest.mark.parametrize("options", LEVELLED, ids=name)
def test_turns_of_one_token_have_the_ratio_of_their_token(options: dict[str, Any]) -> None:
    signals = signals_of(SHIFTS, ADVANTAGES, rows=range(6))
    same(every(signals, options), every(signals, options | {"ratio": "token"}))


@pytest.mark.parametrize("options", LEVELLED, ids=name)
def test_a_trajectory_of_one_turn_has_the_ratio_of_its_turn(options: dict[str, Any]) -> None:
    signals = signals_of(SHIFTS, ADVANTAGES, rows=ROWS, trajectories=[3, 3, 3, 1, 1, 1])
    same(every(signals, options), every(signals, options | {"ratio": "sequence"}))


def test_each_level_takes_the_mean_over_its_own_tokens() -> None:
    # Rows 0 and 2 are of trajectory 0, row 1 between them of trajectory 1. d of the rows: (0.3, -0.1), (0.4), (0.2).
    signals = signals_of([0.3, -0.1, 0.4, 0.2], 0.0, rows=[0, 0, 1, 2], trajectories=[0, 0, 1, 0])
    wanted = {"token": [0.3, -0.1, 0.4, 0.2], "turn": [0.1, 0.1, 0.4, 0.2], "sequence": [0.4 / 3] * 2 + [0.4, 0.4 / 3]}
    for ratio, means in wanted.items():
        found = losses_of(signals, ratio=ratio).values["ratio"].log().tolist()
        assert found == pytest.approx(means)


@pytest.mark.parametrize("options", COMBINATIONS, ids=name)
def test_tokens_in_another_order_have_their_own_losses(options: dict[str, Any]) -> None:
    signals = signals_of(
        SHIFTS, ADVANTAGES, rows=[0, 0, 1, 2, 2, 3], trajectories=[0, 0, 0, 1, 1, 1], behind=[0.1, 0.9, 0, 0, -0.3, 0]
    )
    order = [4, 0, 3, 5, 2, 1]
    moved = {field.name: getattr(signals, field.name) for field in fields(signals)}
    moved = {key: None if value is None else value.detach()[order] for key, value in moved.items()}
    permuted = replace(signals, **moved)
    permuted.logprobs_J.requires_grad_()
    wanted = {key: [values[index] for index in order] for key, values in every(signals, options).items()}
    same(every(permuted, options), wanted)


@pytest.mark.parametrize("options", COMBINATIONS, ids=name)
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("shift", [50.0, -50.0])
def test_extreme_log_ratios_stay_finite(options: dict[str, Any], cap: float | None, shift: float) -> None:
    plain = {"dual_clip": None} if options["surrogate"] in ("clip", "keep_gradient") else {}
    advantages = [1.0, -1.0, 0.0]
    signals = signals_of([shift] * 3, advantages, rows=[0, 1, 2], behind=shift, reference=[shift] * 3)
    signals = replace(signals, **{field.name: _single(getattr(signals, field.name)) for field in fields(signals)})
    asked = options | plain | {"importance_cap": cap, "kl": 0.1, "kl_estimator": "k3_plus"}
    found = every(signals, asked)
    for key, values in found.items():
        assert all(math.isfinite(value) for value in values), key


def _single(tensor: Tensor | None) -> Tensor | None:
    """As the learner has it: float32."""
    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.detach().float().requires_grad_(tensor.requires_grad)


@pytest.mark.parametrize(
    "options", [one for one in COMBINATIONS if one["surrogate"] in ("clip", "cispo", "gmpo")], ids=name
)
def test_no_bounds_means_none(options: dict[str, Any]) -> None:
    bounds = {"clip_low": None, "clip_high": None} | ({"dual_clip": None} if options["surrogate"] == "clip" else {})
    signals = signals_of([3.0, -3.0, 3.0, -3.0], [1.0, 1.0, -1.0, -1.0], rows=range(4))
    losses = losses_of(signals, **options, **bounds)
    assert losses.values["clip_fraction"].sum() == 0
    wanted = [-math.exp(3), -math.exp(-3), math.exp(3), math.exp(-3)]
    assert gradient_of(signals, **options, **bounds) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("surrogate", "shares"),
    [
        ("clip", [1, 0, 0, 1, 0]),
        ("keep_gradient", [1, 0, 0, 1, 0]),
        ("cispo", [1, 1, 1, 1, 0]),
        ("gmpo", [1, 0, 0, 1, 0]),
        ("sapo", [0] * 5),
    ],
)
def test_clip_fraction_counts_where_a_bound_changes_the_gradient(surrogate: str, shares: list[int]) -> None:
    signals = signals_of([0.5, -0.5, 0.5, -0.5, 0.1], [1.0, 1.0, -1.0, -1.0, 1.0], rows=range(5))
    losses = losses_of(signals, surrogate=surrogate)
    assert losses.values["clip_fraction"].tolist() == shares


def test_a_ratio_on_its_bound_is_inside() -> None:
    ratio_J = torch.tensor([0.4375, 0.5, 1.0, 1.25, 1.3125])
    assert outside_share(ratio_J, clip_low=0.5, clip_high=0.25).tolist() == [1, 0, 0, 0, 1]


def test_metrics_carry_no_gradient_and_the_loss_does() -> None:
    losses = losses_of(signals_of(SHIFTS, reference=[-1.0] * 6), kl=0.1)
    assert losses.loss_J.requires_grad
    assert not any(value_J.requires_grad for value_J in losses.values.values())


def test_a_start_that_carries_a_gradient_is_taken_as_a_number() -> None:
    signals = signals_of([0.0, 0.0], 2.0)
    assert gradient_of(replace(signals, start_J=signals.logprobs_J)) == [-2.0, -2.0]


def test_kl_in_the_reward_is_reported_and_no_part_of_the_loss() -> None:
    signals = signals_of([0.0], 0.0, logprobs=-1.0, reference=[-1.2])
    losses = losses_of(signals, kl=0.5, kl_in="reward")
    assert losses.values["kl"].item() == pytest.approx(0.2)
    assert losses.loss_J.item() == 0
    assert "kl" not in losses_of(signals_of([0.0]), kl=0.5, kl_in="reward").values


def test_segments_may_lie_in_any_order_and_leave_indices_out() -> None:
    values = torch.tensor([1.0, 2.0, 3.0, 5.0], requires_grad=True)
    means = segment_mean(values, torch.tensor([4, 0, 4, 0]))
    assert means.tolist() == [2.0, 3.5, 2.0, 3.5]
    means[0].backward()
    assert values.grad is not None
    assert values.grad.tolist() == [0.5, 0, 0.5, 0]


def test_signals_of_different_shapes_are_refused() -> None:
    signals = signals_of([0.0, 0.0])
    with pytest.raises(TrainingError, match=r"one number per token.*'advantage_J': \(1,\)"):
        replace(signals, advantage_J=torch.ones(1))
    columns = {field.name: getattr(signals, field.name) for field in fields(signals)}
    columns = {key: None if value is None else value[:, None] for key, value in columns.items()}
    with pytest.raises(TrainingError, match="one number per token"):
        Signals(**columns)


def test_a_kl_without_reference_is_refused() -> None:
    with pytest.raises(TrainingError, match=r"loss\.kl is 0\.5, but the signals have no"):
        losses_of(signals_of([0.0]), kl=0.5)
    with pytest.raises(TrainingError, match="2 log-probabilities of the policy but 1 of the reference"):
        kl_penalty([-1.0, -1.0], [-1.0], 0.1)
    with pytest.raises(TrainingError, match="'k4' does not exist; possible: k1, k2, k3, k3_plus"):
        kl(torch.zeros(1), torch.zeros(1), "k4")
