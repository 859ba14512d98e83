"""The policy losses and their terms, one formula per function.

Shape legend: J loss tokens of several rows, one after the other (what is elementwise takes any shape). A is an
advantage, rho a ratio, d = log rho. A row is one generation.
"""

import math

import torch
from torch import Tensor

from mas.core.errors import TrainingError
from mas.training.losses.ratios import segment_mean

_KL_ESTIMATORS = ("k1", "k2", "k3", "k3_plus")


def clipped_loss(
    ratio_J: Tensor,
    advantage_J: Tensor,
    *,
    clip_low: float | None,
    clip_high: float | None,
    dual_clip: float | None,
) -> Tensor:
    """Per token, to minimise: max(-A rho, -A clip(rho, 1 - low, 1 + high)); where A < 0 at most -A dual_clip.

    None: no bound on that side. Source: PPO, arXiv 1707.06347, equation 7; a higher upper bound: DAPO, arXiv
    2503.14476, section 3.1; dual clip: arXiv 1912.09729, equation 5.
    """
    bounded_J = ratio_J.clamp(*_bounds(clip_low, clip_high))
    return _pessimistic(ratio_J, bounded_J, advantage_J, dual_clip)


def keep_gradient_loss(
    ratio_J: Tensor,
    advantage_J: Tensor,
    *,
    clip_low: float | None,
    clip_high: float | None,
    dual_clip: float | None,
) -> Tensor:
    """The value of `clipped_loss`, but the upper bound of rho is (1 + high) rho / sg(rho), which has a gradient.

    A good token above the bound keeps the gradient -(1 + high) A towards log pi, where PPO has none.
    Source: AEPO, arXiv 2510.14545 (as its code has it).
    """
    lower, upper = _bounds(clip_low, clip_high)
    kept_J = ratio_J.detach().clamp(max=upper) * ratio_J / ratio_J.detach()
    return _pessimistic(ratio_J, kept_J.clamp(min=lower), advantage_J, dual_clip)


def clipped_share(ratio_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """1 where rho is beyond the bound that its advantage pushes it to, else 0. The dual clip is not counted."""
    return _pushed_out(ratio_J, advantage_J, *_bounds(clip_low, clip_high))


def cispo_loss(
    ratio_J: Tensor, logprobs_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None
) -> Tensor:
    """-w A log pi with the weight w = sg(clip(rho, 1 - low, 1 + high)): every token keeps a gradient, of -w A.

    None: no bound on that side (a cap of c alone is low None, high c - 1).
    Source: CISPO, MiniMax-M1, arXiv 2506.13585, section 3.1; with a cap of 5 alone: ScaleRL, arXiv 2510.13786.
    """
    weight_J = ratio_J.detach().clamp(*_bounds(clip_low, clip_high))
    return -weight_J * advantage_J * logprobs_J


def outside_share(ratio_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """1 where rho is outside [1 - low, 1 + high], whatever its advantage, else 0."""
    lower, upper = _bounds(clip_low, clip_high)
    return ((ratio_J < lower) | (ratio_J > upper)).float()


def gmpo_loss(
    log_ratio_J: Tensor, advantage_J: Tensor, row_J: Tensor, *, clip_low: float | None, clip_high: float | None
) -> Tensor:
    """-A exp(mean over the row of the bounded d), the same for every token of a row.

    d is at most high where A > 0, at least -low where A < 0; None: no bound on that side. Added up over its n tokens
    a row gives each token within its bound the gradient -A exp(mean).
    Source: GMPO, arXiv 2507.20673, equation 4.
    """
    low, high = _magnitudes(clip_low, clip_high)
    bounded_J = torch.where(advantage_J > 0, log_ratio_J.clamp(max=high), log_ratio_J.clamp(min=-low))
    return -advantage_J * segment_mean(bounded_J, row_J).exp()


def gmpo_share(log_ratio_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """1 where `gmpo_loss` bounds d, else 0."""
    low, high = _magnitudes(clip_low, clip_high)
    return _pushed_out(log_ratio_J, advantage_J, -low, high)


def sapo_loss(ratio_J: Tensor, advantage_J: Tensor, *, tau_pos: float, tau_neg: float) -> Tensor:
    """-A (4 / tau) sigmoid(tau (rho - 1)): the gate's slope is 1 at rho = 1 and falls off smoothly on both sides.

    tau is `tau_pos` where A > 0, else `tau_neg`. Source: SAPO, arXiv 2511.20347.
    """
    tau_J = torch.where(advantage_J > 0, tau_pos, tau_neg)
    return -advantage_J * 4 / tau_J * (tau_J * (ratio_J - 1)).sigmoid()


def kl(logprobs_J: Tensor, reference_J: Tensor, estimator: str) -> Tensor:
    """KL(pi || ref) per token from samples of pi, x = log pi - log ref.

    k1 = x; k2 = x^2 / 2 (its gradient is an unbiased KL gradient); k3 = exp(-x) + x - 1, from x clamped to [-20, 20]
    and clamped itself to [-10, 10] (beyond it has no gradient); k3_plus has the value of k3 and the gradient of k2.
    Source: Schulman, "Approximating KL divergence", 2020; clamps and k3_plus as in verl.

    Raises:
        TrainingError: there is no such estimator.
    """
    x = logprobs_J - reference_J
    if estimator == "k1":
        return x
    if estimator == "k2":
        return x.square() / 2
    if estimator not in _KL_ESTIMATORS:
        raise TrainingError(f"KL estimator {estimator!r} does not exist; possible: {', '.join(_KL_ESTIMATORS)}")
    near = x.clamp(-20, 20)
    k3 = ((-near).exp() + near - 1).clamp(-10, 10)
    if estimator == "k3":
        return k3
    k2 = x.square() / 2
    return k2 - k2.detach() + k3.detach()


def _pessimistic(ratio_J: Tensor, bounded_J: Tensor, advantage_J: Tensor, dual_clip: float | None) -> Tensor:
    """The greater loss of rho and of the bounded rho; where A < 0 at most -A dual_clip."""
    loss_J = torch.maximum(-advantage_J * ratio_J, -advantage_J * bounded_J)
    if dual_clip is None:
        return loss_J
    return torch.where(advantage_J < 0, torch.minimum(loss_J, -advantage_J * dual_clip), loss_J)


def _pushed_out(value_J: Tensor, advantage_J: Tensor, lower: float, upper: float) -> Tensor:
    """1 where a value is above `upper` and A > 0, or below `lower` and A < 0, else 0."""
    above = (advantage_J > 0) & (value_J > upper)
    below = (advantage_J < 0) & (value_J < lower)
    return (above | below).float()


def _bounds(clip_low: float | None, clip_high: float | None) -> tuple[float, float]:
    """Least and greatest rho."""
    low, high = _magnitudes(clip_low, clip_high)
    return 1 - low, 1 + high


def _magnitudes(clip_low: float | None, clip_high: float | None) -> tuple[float, float]:
    return math.inf if clip_low is None else clip_low, math.inf if clip_high is None else clip_high
