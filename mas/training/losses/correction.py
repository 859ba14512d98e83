"""Rows from which clipping takes much weigh less: ST-PPO's correction of the clipping bias.

Shape legend: J loss tokens of several rows, one after the other; `row_J` is the index of a token's row.
"""

from torch import Tensor

from mas.training.losses.policy import clipped_share
from mas.training.losses.ratios import segment_mean


def clipping_bias(
    ratio_J: Tensor, advantage_J: Tensor, row_J: Tensor, *, clip_low: float | None, clip_high: float | None
) -> Tensor:
    """b = mean over the row's tokens of |A| x (how far rho is beyond the bound that holds it), for each of its tokens.

    It is what clipping takes from the row's surrogate, never below 0, and without gradient.
    """
    held_J = clipped_share(ratio_J, advantage_J, clip_low=clip_low, clip_high=clip_high)
    # A bound that is not there holds no token, so that its number does not matter.
    lower, upper = 1 - (clip_low or 0.0), 1 + (clip_high or 0.0)
    beyond_J = (ratio_J - upper).clamp(min=0) + (lower - ratio_J).clamp(min=0)
    return segment_mean((held_J * advantage_J.abs() * beyond_J).detach(), row_J)


def bias_correction(
    ratio_J: Tensor, advantage_J: Tensor, row_J: Tensor, *, clip_low: float | None, clip_high: float | None
) -> Tensor:
    """1 / (1 + b), a weight for the policy loss of every token of the row; b is the row's `clipping_bias`.

    1 where nothing is clipped, and the less the further off-policy a row is. `ratio_J` are ratios of tokens, also where
    the loss has ratios of turns (ST-PPO; with ratios of tokens it is S-PPO): a turn is clipped whole or not at all, and
    one that is not can hold tokens that moved far, one up and one down. Measured by the turn's own ratio b would be 0
    wherever there is a gradient to weigh.

    Source: ST-PPO, arXiv 2511.20718: gradients are normalised by the clipping bias, so that unreliable, highly
    off-policy samples weigh less. That, and no more, is stated where we could read; this form, per row, of tokens and
    with the 1 that keeps rows without bias as they are, is our reading.
    """
    bias_J = clipping_bias(ratio_J, advantage_J, row_J, clip_low=clip_low, clip_high=clip_high)
    return 1 / (1 + bias_J)
