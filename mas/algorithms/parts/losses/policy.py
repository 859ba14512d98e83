"""The policy losses and their terms, one formula per function: ratios and importance weights, surrogates and what their
bounds take, KL and entropy smoothing.

Shape legend: J loss tokens of several rows, one after the other (what is elementwise takes any shape). `segment_J` is
the index of the row or of the trajectory that a token belongs to. A is an advantage, rho a ratio, d = log rho. A row is
one generation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, model_validator

from mas.core.errors import TrainingError
from mas.core.options import NonNegative, Options

if TYPE_CHECKING:
    from torch import Tensor

_KL_ESTIMATORS = ("k1", "k2", "k3", "k3_plus")
LIMIT = 20.0
"""Nats that a log ratio is clamped to: exp(20) is still far from the end of float32."""


def log_ratio(logprobs_J: Tensor, old_J: Tensor) -> Tensor:
    """d = log pi - log old, clamped to [-20, 20]; `old_J` gets no gradient."""
    return (logprobs_J - old_J.detach()).clamp(-LIMIT, LIMIT)


def shared_ratio(log_ratio_J: Tensor, logprobs_J: Tensor, segment_J: Tensor) -> Tensor:
    """s = exp(mean of d over the tokens of the segment), the same value for each of them.

    Each token has its own gradient: log s_j = sg(mean d) + log pi_j - sg(log pi_j), so d s_j / d log pi_j = s.
    Source: GSPO, arXiv 2507.18071, equations 7 and 14.
    """
    mean_J = segment_mean(log_ratio_J.detach(), segment_J)
    return (mean_J + logprobs_J - logprobs_J.detach()).exp()


def segment_mean(value_J: Tensor, segment_J: Tensor) -> Tensor:
    """Each token gets the mean over the tokens of its segment; indices from 0 on, in any order."""
    counts = segment_J.bincount()
    sums = value_J.new_zeros(len(counts)).index_add(0, segment_J, value_J)
    return (sums / counts.clamp(min=1))[segment_J]


def importance_weights(start_J: Tensor, behaviour_J: Tensor) -> Tensor:
    """w = pi_start / behaviour, untruncated and without gradient; the log ratio is clamped to [-20, 20] first."""
    return log_ratio(start_J.detach(), behaviour_J).exp()


def truncated(importance_J: Tensor, cap: float) -> Tensor:
    """min(w, cap): bounded variance for a bias where w is above the cap.

    Source: Ionides, "Truncated importance sampling", 2008; between engine and learner: Yao et al., "Your efficient RL
    framework secretly brings you off-policy RL training", 2025.
    """
    return importance_J.clamp(max=cap)


@dataclass(frozen=True, slots=True)
class ImportanceStatistics:
    """How far samples are from the learner's policy.

    `ess`: effective sample size as a share, (sum w)^2 / (n sum w^2), 1 where all weights are equal. `largest`: the
    greatest weight.
    """

    ess: float
    largest: float


def importance_statistics(importance_J: Tensor) -> ImportanceStatistics:
    """Of the untruncated weights of one adapter's tokens, one at least."""
    weights_J = importance_J.double()  # squares of weights up to exp(20)
    ess = weights_J.sum().square() / (len(weights_J) * weights_J.square().sum())
    return ImportanceStatistics(ess=float(ess), largest=float(weights_J.max()))


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
    bounded_J = log_ratio_J.clamp(max=high).where(advantage_J > 0, log_ratio_J.clamp(min=-low))
    return -advantage_J * segment_mean(bounded_J, row_J).exp()


def gmpo_share(log_ratio_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """1 where `gmpo_loss` bounds d, else 0."""
    low, high = _magnitudes(clip_low, clip_high)
    return _pushed_out(log_ratio_J, advantage_J, -low, high)


def sapo_loss(ratio_J: Tensor, advantage_J: Tensor, *, tau_pos: float, tau_neg: float) -> Tensor:
    """-A (4 / tau) sigmoid(tau (rho - 1)): the gate's slope is 1 at rho = 1 and falls off smoothly on both sides.

    tau is `tau_pos` where A > 0, else `tau_neg`. Source: SAPO, arXiv 2511.20347.
    """
    import torch

    tau_J = torch.where(advantage_J > 0, tau_pos, tau_neg)
    return -advantage_J * 4 / tau_J * (tau_J * (ratio_J - 1)).sigmoid()


def taken_loss(ratio_J: Tensor, advantage_J: Tensor, *, clip_low: float | None, clip_high: float | None) -> Tensor:
    """-A rho of tokens that a bound holds, else 0. Its gradient is what clipping takes from that of -A rho.

    The clipping bias C(theta) is this gradient, with the weights that tokens have in the loss: mean over tokens outside
    of the bounds of rho A grad log pi. rho is a token's own (S-PPO) or its turn's (ST-PPO, equation 4).
    Source: ST-PPO, arXiv 2511.20718v1, lemma 4.2.
    """
    held_J = clipped_share(ratio_J, advantage_J, clip_low=clip_low, clip_high=clip_high)
    return -held_J * advantage_J * ratio_J


def bias_norm(gradients: Sequence[Tensor]) -> float:
    """||C||_2 of an adapter, from what clipping takes from the gradients of its tensors; 0 where it takes nothing."""
    return math.sqrt(math.fsum(float(one.double().square().sum()) for one in gradients))


def bias_correction(norm: float) -> float:
    """1 / (1 + ||C||_2), which the gradient of an update is multiplied by; 1 where nothing is clipped.

    Source: ST-PPO, arXiv 2511.20718v1, equations 7 and 8, which divide by ||C||_2. The 1 is ours: on policy C is 0.
    """
    return 1 / (1 + norm)


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


def kl_penalties(logprobs: Sequence[float], reference: Sequence[float], beta: float) -> list[float]:
    """beta x (log pi - log ref) of each token of one turn, to be subtracted from the token's reward.

    Args and errors as of `kl_penalty`, which is their sum. Source: Ziegler et al., arXiv 1909.08593, equation 2.
    """
    if len(logprobs) != len(reference):
        raise TrainingError(
            f"{len(logprobs)} log-probabilities of the policy but {len(reference)} of the reference: both must be of "
            "the same completion"
        )
    return [beta * (own - other) for own, other in zip(logprobs, reference, strict=True)]


def kl_penalty(logprobs: Sequence[float], reference: Sequence[float], beta: float) -> float:
    """beta x sum over the tokens of one turn of (log pi - log ref), to be subtracted from the turn's reward.

    This is the estimator k1; a single turn's may be negative, its mean over samples of pi is the KL divergence.
    Source: Ziegler et al., arXiv 1909.08593, equation 2.

    Args:
        logprobs: of the completion's tokens under the policy that sampled them, in nats. reference: likewise.

    Raises:
        TrainingError: the two lengths differ.
    """
    return math.fsum(kl_penalties(logprobs, reference, beta))


class SmoothingOptions(Options):
    """Each token's entropy is held between `low` and `high` times what it used to be in that team turn of an episode.

    How far it is out of that band costs `weight` x the coefficient of the entropy, less and less over `steps`.
    """

    weight: Annotated[float, Field(gt=0)] = 1.0
    low: NonNegative = 0.0
    high: Annotated[float, Field(gt=0)] = 2.0
    steps: Annotated[int, Field(ge=2)] = 100

    @model_validator(mode="after")
    def _is_a_band(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low={self.low:g} and high={self.high:g} leave no band: low must be below high")
        return self


def band_hinge(entropy_J: Tensor, usual_J: Tensor, *, low: float, high: float) -> Tensor:
    """P = max(0, low x usual - H) + max(0, H - high x usual): how far H is out of the band, in nats.

    Its slope towards H is -1 below the band, 1 above it, 0 inside; `usual_J` gets no gradient.
    """
    usual_J = usual_J.detach()
    return (low * usual_J - entropy_J).clamp(min=0) + (entropy_J - high * usual_J).clamp(min=0)


def _pessimistic(ratio_J: Tensor, bounded_J: Tensor, advantage_J: Tensor, dual_clip: float | None) -> Tensor:
    """The greater loss of rho and of the bounded rho; where A < 0 at most -A dual_clip."""
    loss_J = (-advantage_J * ratio_J).maximum(-advantage_J * bounded_J)
    if dual_clip is None:
        return loss_J
    return loss_J.minimum(-advantage_J * dual_clip).where(advantage_J < 0, loss_J)


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
