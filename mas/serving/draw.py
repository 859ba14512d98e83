"""Drawing tokens from counters instead of carried random state: the draw depends on the request's seed and the
position alone, so that a batch's other members cannot change it."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """N numbers in [0, 1): splitmix64 of seed and position. Source: Steele, Lea and Flood, OOPSLA 2014."""
    with np.errstate(over="ignore"):
        z = np.asarray(seeds, dtype=np.uint64) + _GOLDEN * (np.asarray(positions, dtype=np.uint64) + np.uint64(1))
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z ^= z >> np.uint64(31)
    drawn: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def draw_tokens(
    logits_NV: Tensor,
    temperatures: Sequence[float],
    seeds: Sequence[int],
    positions: Sequence[int],
    support_NV: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One token per row by inverse transform; a temperature of 0 takes the most likely one.

    Args:
        support_NV: true where a token may be drawn; None: everywhere.

    Returns:
        tokens_N, and logprobs_N under softmax(logits / T) over the support, with T = 1 for greedy rows.
    """
    if support_NV is not None:
        logits_NV = logits_NV.masked_fill(~support_NV, -torch.inf)
    heat = torch.tensor([t if t > 0 else 1.0 for t in temperatures], device=logits_NV.device)
    logprobs_NV = torch.log_softmax(logits_NV.float() / heat[:, None], dim=-1)
    cdf_NV = logprobs_NV.double().exp().cumsum(-1)
    u_N = torch.from_numpy(uniforms(seeds, positions)).to(logits_NV.device)
    drawn = torch.searchsorted(cdf_NV, (u_N * cdf_NV[:, -1])[:, None], right=True)[:, 0]
    greedy = torch.tensor([t == 0 for t in temperatures], device=logits_NV.device)
    drawn = drawn.clamp(max=logits_NV.shape[-1] - 1)
    if support_NV is not None:  # a number next to 1 can round to behind the last token that is possible
        greedy |= ~support_NV.gather(-1, drawn[:, None])[:, 0]
    tokens_N = torch.where(greedy, logits_NV.argmax(-1), drawn)
    return tokens_N, logprobs_NV.gather(-1, tokens_N[:, None])[:, 0]
