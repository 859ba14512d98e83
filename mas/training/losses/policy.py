"""The clipped policy loss and its terms, one formula per function.

Shape legend: N rows, L tokens (right-aligned), V vocabulary. `mask_NL` is True at trained tokens.
"""

import torch
from torch import Tensor

from mas.core.errors import TrainingError


def ratio(logprobs_NL: Tensor, behaviour_NL: Tensor) -> Tensor:
    """rho = exp(log pi - log old), the difference clamped to [-20, 20] first."""
    return (logprobs_NL - behaviour_NL).clamp(-20, 20).exp()


def clipped_loss(
    ratio_NL: Tensor, advantage_N1: Tensor, *, clip_low: float, clip_high: float, dual_clip: float | None
) -> Tensor:
    """Per token, to minimise: max(-A rho, -A clip(rho, 1 - low, 1 + high)); where A < 0 at most -A dual_clip.

    Source: PPO, arXiv 1707.06347, equation 7; dual clip: arXiv 1912.09729, equation 5.
    """
    plain = -advantage_N1 * ratio_NL
    loss = torch.maximum(plain, -advantage_N1 * ratio_NL.clamp(1 - clip_low, 1 + clip_high))
    if dual_clip is None:
        return loss
    return torch.where(advantage_N1 < 0, torch.minimum(loss, -advantage_N1 * dual_clip), loss)


def clipped_share(ratio_NL: Tensor, advantage_N1: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """1 where the clip takes the gradient away, else 0."""
    above = (advantage_N1 > 0) & (ratio_NL > 1 + clip_high)
    below = (advantage_N1 < 0) & (ratio_NL < 1 - clip_low)
    return (above | below).float()


def kl(logprobs_NL: Tensor, reference_NL: Tensor, estimator: str) -> Tensor:
    """KL(pi || ref) per token from samples of pi, x = log pi - log ref.

    k1 = x; k2 = x^2 / 2 (its gradient is an unbiased KL gradient); k3 = exp(-x) + x - 1.
    Source: Schulman, "Approximating KL divergence", 2020.
    """
    x = (logprobs_NL - reference_NL).clamp(-10, 10)
    if estimator == "k1":
        return x
    if estimator == "k2":
        return x.square() / 2
    if estimator == "k3":
        return (-x).exp() + x - 1
    raise TrainingError(f"KL estimator {estimator!r} does not exist; possible: 'k1', 'k2', 'k3'")


def entropy(logits_NLV: Tensor, allowed_NV: Tensor | None = None) -> Tensor:
    """Entropy in nats per position, [N, L]; with `allowed_NV` that of the distribution renormalised over the
    allowed tokens (an entropy bonus over the whole vocabulary drains probability from the legal ones)."""
    if allowed_NV is not None:
        logits_NLV = logits_NLV.masked_fill(~allowed_NV[:, None], -torch.inf)
    logprobs_NLV = torch.log_softmax(logits_NLV, -1)
    return -(logprobs_NLV.exp() * logprobs_NLV.masked_fill(logprobs_NLV == -torch.inf, 0.0)).sum(-1)
