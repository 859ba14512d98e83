"""From hidden states to logits, and from logits to tokens.

The output layer where only some logits are wanted: chunk by chunk, and gone when forward ends. Of R places of a batch
(readings) the head yields the log-sum-exp and the entropy of the whole vocabulary and the logits of P wanted tokens.
Each is one number whose slope towards its hidden state is one vector of D numbers: p W for the log-sum-exp, where p are
the probabilities. So the slopes are made together with the numbers, from the same chunk of the matrix [R, V], and
backward neither keeps nor computes it again. The share p of a picked token is added in backward: the slope of its
log-probability is 1 - p, which is lost in bfloat16 where it is a difference of two sums.

Which tokens may be drawn (`supports_of`): what a grammar allows, less the unlikely ones. Drawing them (`draw_tokens`)
depends on the request's seed and the position alone, not on carried random state, so that a batch's other members
cannot change it.

Shape legend: N rows, R readings, C of one chunk, P picks, D hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from mas.core.engine import Sampling
from mas.core.errors import ModelError
from mas.core.support import unpack_support

IMPOSSIBLE = -1e30
"""The logit of a token outside the support: its probability is 0, and 0 times it is 0, unlike with infinity."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def make_head_input_contiguous(model: PreTrainedModel) -> None:
    """Last positions are a strided slice of the hidden states, for which torch multiplies row by row. That
    is slow, and in bfloat16 the head's weights may be copied for each row."""
    layer: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers annotates in part
    layer.register_forward_pre_hook(lambda _, inputs: (inputs[0].contiguous(), *inputs[1:]))


@dataclass(frozen=True, slots=True)
class Head:
    """logits = cap(factor x (hidden W' + bias)), as models that share this form name its parts."""

    weight_VD: Tensor
    bias_V: Tensor | None
    factor: float = 1.0
    cap: float | None = None

    @classmethod
    def of(cls, model: PreTrainedModel) -> Head:
        """A model's own, tied to its embeddings or not.

        Raises:
            ModelError: the model has no linear output layer.
        """
        layer: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]  # transformers annotates in part
        if not isinstance(layer, torch.nn.Linear):
            raise ModelError(
                f"the output layer of {type(model).__name__} is no plain linear layer: it cannot be trained"
            )
        config = model.config.get_text_config()
        factor = float(getattr(config, "logit_scale", None) or 1.0) / float(
            getattr(config, "logits_scaling", None) or 1.0
        )
        return cls(layer.weight, layer.bias, factor, getattr(config, "final_logit_softcapping", None))

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """[R, V] in float32."""
        logits_RV = torch.nn.functional.linear(hidden_RD, self.weight_VD, self.bias_V).float()
        if self.factor != 1:
            logits_RV *= self.factor
        return logits_RV if self.cap is None else logits_RV.div_(self.cap).tanh_().mul_(self.cap)

    def slope(self, heated: Tensor, heat: Tensor) -> Tensor | None:
        """The slope of the cap where logits over `heat` are these; None: it is 1, as there is no cap."""
        return None if self.cap is None else 1 - (heated * (heat / self.cap)).square().clamp(max=1)

    def back(self, slope_CV: Tensor, cap_slope_CV: Tensor | None) -> Tensor:
        """From slopes towards logits to slopes towards hidden states, [C, D], but for factor and heat."""
        if cap_slope_CV is not None:
            slope_CV = slope_CV * cap_slope_CV
        return slope_CV.to(self.weight_VD.dtype) @ self.weight_VD


@dataclass(frozen=True, slots=True)
class Picks:
    """What is wanted of R readings.

    Attributes:
        heat_R1: temperature that the reading's logits are divided by; `is_heated`: one of them is not 1.
        reading_P, token_P: pick p is the logit of token `token_P[p]` at reading `reading_P[p]`; sorted by reading.
        first_P: 1 for the first pick of a token at its reading, 0 for others of the same.
        starts: the first pick of each reading, and P.
        supports: of each reading the tokens that its distribution is over (`mas.core.support`); empty: all of them.
    """

    heat_R1: Tensor
    is_heated: bool
    reading_P: Tensor
    token_P: Tensor
    first_P: Tensor
    starts: list[int]
    supports: tuple[bytes, ...] = ()

    def impossible(self, rows: slice, vocabulary: int) -> Tensor | None:
        """[C, V], true for tokens outside the supports of these readings; None: there are none."""
        own = self.supports[rows]
        if not any(own):
            return None
        masks_CV = np.stack([unpack_support(support, vocabulary) for support in own])
        return torch.from_numpy(~masks_CV).to(self.heat_R1.device)


@dataclass(frozen=True, slots=True)
class Picked:
    """`logits_P` of the picks (over temperature), `lse_R` and `entropy_R` (nats) of all readings."""

    logits_P: Tensor
    lse_R: Tensor
    entropy_R: Tensor


def pick(head: Head, hidden_RD: Tensor, picks: Picks, chunk: int, *, entropy_slope: bool = True) -> Picked:
    """Read the head at some places, `chunk` of them at a time (0: all at once). Has gradients.

    `entropy_slope` False: the entropy is a number without gradient, which saves a third of the work.
    """
    slopes = (2 if entropy_slope else 1) if torch.is_grad_enabled() and hidden_RD.requires_grad else 0
    found = _Pick.apply(hidden_RD, head, picks, chunk or len(hidden_RD), slopes)  # type: ignore[no-untyped-call]
    return Picked(found[0], found[1], found[2] if slopes != 1 else found[2].detach())


class _Pick(torch.autograd.Function):
    """`slopes`: of nothing (0), of the log-sum-exp (1), of the entropy, too (2)."""

    @staticmethod
    def forward(
        ctx: Any, hidden_RD: Tensor, head: Head, picks: Picks, chunk: int, slopes: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        found_P = hidden_RD.new_empty(len(picks.token_P), dtype=torch.float32)
        lse_R, entropy_R = (hidden_RD.new_empty(len(hidden_RD), dtype=torch.float32) for _ in range(2))
        kept = [torch.empty_like(hidden_RD) for _ in range(slopes)]
        for start in range(0, len(hidden_RD), chunk):
            rows = slice(start, min(start + chunk, len(hidden_RD)))
            first, last = picks.starts[rows.start], picks.starts[rows.stop]
            logits_CV = head.logits(hidden_RD[rows])
            if picks.is_heated:
                logits_CV /= picks.heat_R1[rows]
            slope_CV = head.slope(logits_CV, picks.heat_R1[rows]) if slopes else None
            if (impossible_CV := picks.impossible(rows, logits_CV.shape[-1])) is not None:
                logits_CV.masked_fill_(impossible_CV, IMPOSSIBLE)
            found_P[first:last] = logits_CV[picks.reading_P[first:last] - start, picks.token_P[first:last]]
            top_C1 = logits_CV.amax(-1, keepdim=True)
            share_CV = logits_CV.sub_(top_C1).exp()
            total_C1 = share_CV.sum(-1, keepdim=True)
            log_C1 = total_C1.log()
            lse_R[rows] = (top_C1 + log_C1)[:, 0]
            if slopes < 2:
                entropy_R[rows] = (log_C1 - logits_CV.mul_(share_CV).sum(-1, keepdim=True).div_(total_C1))[:, 0]
            else:  # of -sum p log p: -p (log p + H)
                share_CV /= total_C1
                logits_CV -= log_C1
                entropy_R[rows] = -(logits_CV * share_CV).sum(-1)
                slope_of_entropy_CV = logits_CV.add_(entropy_R[rows, None]).mul_(share_CV).neg_()
                kept[1][rows] = head.back(slope_of_entropy_CV, slope_CV)
                total_C1 = torch.ones_like(total_C1)
            if slopes:
                share_CV[picks.reading_P[first:last] - start, picks.token_P[first:last]] = 0
                kept[0][rows] = head.back(share_CV, slope_CV) / total_C1
        ctx.save_for_backward(*kept)
        ctx.head, ctx.picks, ctx.found_P, ctx.lse_R = head, picks, found_P.detach(), lse_R.detach()
        return found_P, lse_R, entropy_R

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        head, picks, kept = ctx.head, ctx.picks, ctx.saved_tensors
        scale_R1 = head.factor / picks.heat_R1
        into_RD = kept[0] * (grads[1][:, None] * scale_R1).to(kept[0].dtype)
        if len(kept) == 2:
            into_RD.addcmul_(kept[1], (grads[2][:, None] * scale_R1).to(kept[1].dtype))
        share_P = (ctx.found_P - ctx.lse_R[picks.reading_P]).exp() * picks.first_P
        weight_P1 = (grads[0] + grads[1][picks.reading_P] * share_P)[:, None] * scale_R1[picks.reading_P]
        slope_P = head.slope(ctx.found_P, picks.heat_R1[picks.reading_P, 0])
        if slope_P is not None:
            weight_P1 *= slope_P[:, None]
        into_RD.index_add_(0, picks.reading_P, head.weight_VD[picks.token_P] * weight_P1.to(into_RD.dtype))
        return into_RD, None, None, None, None


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


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> NDArray[np.float64]:
    """N numbers in [0, 1): splitmix64 of seed and position. Source: Steele, Lea and Flood, OOPSLA 2014."""
    with np.errstate(over="ignore"):
        z = np.asarray(seeds, dtype=np.uint64) + _GOLDEN * (np.asarray(positions, dtype=np.uint64) + np.uint64(1))
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        z ^= z >> np.uint64(31)
    drawn: NDArray[np.float64] = (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return drawn


def likeliest(
    logits_NV: Tensor, temperatures: Sequence[float], count: int, support_NV: Tensor | None = None
) -> list[list[tuple[int, float]]]:
    """The `count` most likely tokens of each row with their log-probabilities, as `draw_tokens` has them; fewer where
    the support has fewer."""
    if support_NV is not None:
        logits_NV = logits_NV.masked_fill(~support_NV, -torch.inf)
    heat = torch.tensor([t if t > 0 else 1.0 for t in temperatures], device=logits_NV.device)
    values_NK, tokens_NK = torch.log_softmax(logits_NV.float() / heat[:, None], dim=-1).topk(count)
    return [
        [(token, value) for token, value in zip(tokens, values, strict=True) if math.isfinite(value)]
        for tokens, values in zip(tokens_NK.tolist(), values_NK.tolist(), strict=True)
    ]


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
