"""Ratios of the policy to an older one: of a token, or shared by all tokens of a turn or of a trajectory.

Shape legend: J loss tokens; `segment_J` is the index of the row or of the trajectory that a token belongs to.
"""

import torch
from torch import Tensor

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
    counts = torch.bincount(segment_J)
    sums = value_J.new_zeros(len(counts)).index_add(0, segment_J, value_J)
    return (sums / counts.clamp(min=1))[segment_J]
