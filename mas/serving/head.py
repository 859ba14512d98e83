"""The output layer where only some logits are wanted: chunk by chunk, and gone when forward ends.

Of R places of a batch (readings) the head yields the log-sum-exp and the entropy of the whole vocabulary and the logits
of P wanted tokens. Each is one number whose slope towards its hidden state is one vector of D numbers: p W for the
log-sum-exp, where p are the probabilities. So the slopes are made together with the numbers, from the same chunk of the
matrix [R, V], and backward neither keeps nor computes it again. The share p of a picked token is added in backward: the
slope of its log-probability is 1 - p, which is lost in bfloat16 where it is a difference of two sums.

Shape legend: R readings, C of one chunk, P picks, D hidden size, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from mas.core.errors import ModelError
from mas.core.support import unpack_support

IMPOSSIBLE = -1e30
"""The logit of a token outside the support: its probability is 0, and 0 times it is 0, unlike with infinity."""


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
