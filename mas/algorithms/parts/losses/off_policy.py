"""Masks over the importance weights: which tokens are too far from the policy that sampled them to learn from.

log w = log start - log behaviour of each token, without gradient and not clamped, unlike the weights that multiply a
loss: at 20 nats a clamp would hide how far an outlier is. Bounds are compared as logarithms, so that nothing overflows.

A masked token adds nothing to the policy loss. It stays in the denominator of the aggregation, so that the others weigh
as much as without masks, and its KL and entropy terms stay. Source of both: IcePop, arXiv 2510.18855, where M(k) takes
the place of the weight alone, inside a sum divided by all tokens of a response.

Shape legend: J loss tokens of several rows, one after the other. `segment_J` is the index of the row or of the
trajectory that a token belongs to. Masks are True where a token is left out.
"""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Self

from pydantic import model_validator

from mas.algorithms.parts.losses.policy import segment_mean
from mas.core.options import Selective

if TYPE_CHECKING:
    from torch import Tensor

ANY_MASKED = "off_policy_masked"
MASKED = ("token_band_masked", "sequence_band_masked", "veto_masked", ANY_MASKED)
"""Metrics: what each mask leaves out, and what any of them does."""


class OffPolicyOptions(Selective):
    """Tokens that add nothing to the policy loss, by their importance weights w = start / behaviour; each a band
    [low, high] of weights to learn from, bounds included, with low 0 for no lower bound, or None: no such mask.

    `token_band`: a token whose w is outside (IcePop). `sequence_band`: all tokens of a turn where the geometric mean of
    their w is outside. `veto`: all tokens of a turn in which any w is outside. With ratio=sequence the two are of a
    trajectory in place of a turn.
    """

    token_band: tuple[float, float] | None = None
    sequence_band: tuple[float, float] | None = None
    veto: tuple[float, float] | None = None

    def unused_reason(self, name: str) -> str | None:
        band = getattr(self, name)
        if name == "veto" or band is None or self.veto is None:
            return None
        if band[0] <= self.veto[0] and self.veto[1] <= band[1]:
            return f"veto={list(self.veto)} leaves out all that it would"
        return None

    @model_validator(mode="after")
    def _are_bands(self) -> Self:
        bands = {"token_band": self.token_band, "sequence_band": self.sequence_band, "veto": self.veto}
        given = {name: band for name, band in bands.items() if band is not None}
        if not given:
            raise ValueError(f"there is no mask: give {', '.join(bands)} or several of them, or write off_policy=null")
        for name, (low, high) in given.items():
            if not 0 <= low <= 1 <= high < math.inf or low == high:
                raise ValueError(
                    f"{name}={[low, high]} is no band of weights, which are 1 on policy: write [low, high] with "
                    "0 <= low <= 1 <= high, low below high and both finite"
                )
        return self


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
    return masks | {ANY_MASKED: reduce(or_, masks.values())}
