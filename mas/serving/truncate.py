"""Which tokens may be drawn: what a grammar allows, less the unlikely ones.

Shape legend: N rows, V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas.core.engine import Sampling


def supports_of(
    logits_NV: Tensor, samplings: Sequence[Sampling], masks: Sequence[NDArray[np.bool_] | None]
) -> Tensor | None:
    """[N, V], true where a row may draw; None: every row may draw any token.

    Args:
        masks: what a row's grammar allows, [V]; None: any token.
    """
    if not any(sampling.is_restricted for sampling in samplings):
        return None
    support_NV = torch.ones_like(logits_NV, dtype=torch.bool)
    for row, mask_V in enumerate(masks):
        if mask_V is not None:
            support_NV[row] = torch.from_numpy(mask_V).to(logits_NV.device)
    rows = [row for row, sampling in enumerate(samplings) if sampling.is_truncated]
    if rows:
        taken = [samplings[row] for row in rows]
        heat_N1 = torch.tensor([sampling.temperature for sampling in taken], device=logits_NV.device)[:, None]
        scores_NV = (logits_NV[rows].float() / heat_N1).masked_fill(~support_NV[rows], -torch.inf)
        support_NV[rows] = likely(scores_NV, taken)
    return support_NV


def likely(scores_NV: Tensor, samplings: Sequence[Sampling], first: int = 512) -> Tensor:
    """[N, V], true for tokens that `min_p`, then `top_k`, then `top_p` leave; of equally likely ones all or none.

    Args:
        scores_NV: logits over temperature, -inf where a token is not possible; one is possible in each row.
        first: how many of the most likely tokens are sorted, if they are enough; all otherwise.
    """
    device, size = scores_NV.device, scores_NV.shape[-1]
    first = min(size, max(first, *(sampling.top_k for sampling in samplings)))
    top_NF = scores_NV.topk(first).values
    min_p = torch.tensor([sampling.min_p for sampling in samplings], device=device)[:, None]
    top_k = torch.tensor([min(sampling.top_k or size, size) for sampling in samplings], device=device)[:, None]
    top_p = torch.tensor([sampling.top_p for sampling in samplings], device=device)[:, None]
    least_N1 = top_NF[:, :1] + min_p.log()
    has_k = top_k < size
    least_N1 = torch.where(has_k, least_N1.maximum(top_NF.gather(-1, top_k.clamp(max=first) - 1)), least_N1)
    left_NV = scores_NV.masked_fill(scores_NV < least_N1, -torch.inf)
    before_NF = (top_NF.masked_fill(top_NF < least_N1, -torch.inf) - left_NV.logsumexp(-1, keepdim=True)).exp()
    before_NF = before_NF.cumsum(-1).roll(1, -1)  # probability of all that are more likely
    whole_N1 = before_NF[:, :1].clone()
    has_p = top_p < 1
    if first < size and bool((has_p & (whole_N1 < top_p) & (top_NF[:, -1:] >= least_N1)).any()):
        return likely(scores_NV, samplings, size)
    before_NF[:, 0] = 0
    last_N1 = (before_NF < top_p).sum(-1, keepdim=True).clamp(min=1) - 1
    least_N1 = torch.where(has_p, least_N1.maximum(top_NF.gather(-1, last_N1)), least_N1)
    return (scores_NV >= least_N1) & (scores_NV > -torch.inf)
