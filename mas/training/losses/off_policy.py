"""Masks over the importance weights: which tokens are too far from the policy that sampled them to learn from.

log w = log start - log behaviour of each token, without gradient and not clamped, unlike the weights that multiply a
loss: at 20 nats a clamp would hide how far an outlier is. Bounds are compared as logarithms, so that nothing overflows.

A masked token adds nothing to the policy loss. It stays in the denominator of the aggregation, so that the others weigh
as much as without masks, and its KL and entropy terms stay. Source of both: IcePop, arXiv 2510.18855, where M(k) takes
the place of the weight alone, inside a sum divided by all tokens of a response.

Shape legend: J loss tokens of several rows, one after the other. `segment_J` is the index of the row or of the
trajectory that a token belongs to. Masks are True where a token is left out.
"""

import math

import torch
from torch import Tensor

from mas.config.updates import OffPolicyOptions
from mas.training.losses.policy import segment_mean

ANY_MASKED = "off_policy_masked"
MASKED = ("token_band_masked", "sequence_band_masked", "veto_masked", ANY_MASKED)
"""Metrics: what each mask leaves out, and what any of them does."""


def outside_band(log_weight_J: Tensor, *, low: float, high: float) -> Tensor:
    """True where w < low or w > high, or where w is not a number. `low` 0: no bound on that side.

    Over single tokens it is M(k) of IcePop, arXiv 2510.18855, which has the band [0.5, 5].
    """
    lowest = math.log(low) if low else -math.inf
    return ~((log_weight_J >= lowest) & (log_weight_J <= math.log(high)))


def outside_sequence_band(log_weight_J: Tensor, segment_J: Tensor, *, low: float, high: float) -> Tensor:
    """True for all tokens of a segment whose geometric mean of w, exp(mean of log w), is outside of the band.

    Source: SkyRL, `sequence_mask_metric=geometric`, which recommends [0.99, 1.01].
    """
    return outside_band(segment_mean(log_weight_J, segment_J), low=low, high=high)


def vetoed(log_weight_J: Tensor, segment_J: Tensor, *, low: float, high: float) -> Tensor:
    """True for all tokens of a segment in which any token's w is outside of the band.

    Source: SkyRL, `outlier_token_is_threshold_low` and `_high`, which suggests [1e-4, 100].
    """
    outliers_J = outside_band(log_weight_J, low=low, high=high)
    return segment_mean(outliers_J.to(log_weight_J.dtype), segment_J) > 0


def off_policy_masks(
    start_J: Tensor, behaviour_J: Tensor, segment_J: Tensor, options: OffPolicyOptions
) -> dict[str, Tensor]:
    """The masks that the options ask for, by the names of their metrics, and the union of them."""
    log_weight_J = start_J.detach() - behaviour_J.detach()
    masks: dict[str, Tensor] = {}
    if options.token_band is not None:
        low, high = options.token_band
        masks["token_band_masked"] = outside_band(log_weight_J, low=low, high=high)
    if options.sequence_band is not None:
        low, high = options.sequence_band
        masks["sequence_band_masked"] = outside_sequence_band(log_weight_J, segment_J, low=low, high=high)
    if options.veto is not None:
        low, high = options.veto
        masks["veto_masked"] = vetoed(log_weight_J, segment_J, low=low, high=high)
    return masks | {ANY_MASKED: torch.stack([*masks.values()]).any(dim=0)}
