"""The grouped LoRA linear of training: tokens of many adapters in one batch, sorted by adapter, over one frozen base.

The base's product is computed once for all tokens. Each adapter adds its own low-rank product to its own tokens, in
place; backward does the same with the gradients. No adapter's weights touch another adapter's tokens, so its gradient
cannot either. On CUDA the low-rank products of all adapters are grouped matrix products where torch has them.

Shape legend: N rows of T tokens, M = N T, I inputs, O outputs, R rank; G segments.
Source: LoRA, arXiv 2106.09685, section 4: h = W x + (alpha / r) B A x.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mas.core.errors import ModelError
from mas.serving.weights import AdapterWeights


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows or tokens `start` to `stop` of a batch speak with `weights`; None: the bare base."""

    weights: AdapterWeights | None
    start: int
    stop: int


def segments_of(speakers: Iterable[tuple[AdapterWeights | None, int]]) -> tuple[Segment, ...]:
    """Who speaks and in how many rows or tokens, one after the other; neighbours of one adapter are one segment."""
    found: list[Segment] = []
    for weights, count in speakers:
        start = found[-1].stop if found else 0
        stop = start + count
        if found and found[-1].weights is weights:
            start = found.pop().start
        found.append(Segment(weights, start, stop))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Segments:
    """Who speaks in which tokens of a batch that is trained; covers all of them in order. `ends_G`: of each."""

    segments: tuple[Segment, ...]
    ends_G: Tensor

    @classmethod
    def of(cls, segments: Sequence[Segment], device: torch.device) -> Segments:
        """The segments of one batch, which all its layers read."""
        ends_G = torch.tensor([one.stop for one in segments], dtype=torch.int32, device=device)
        return cls(tuple(segments), ends_G)

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """The layer `name` of every token with its adapter, [N, T, O]."""
        tokens = x_NTI.shape[:-1].numel()
        if self.segments[-1].stop != tokens:
            raise ModelError(
                f"layer {name!r} was given {tokens} of {self.segments[-1].stop} tokens: a layer that not every token "
                "passes (an expert) cannot be trained; leave it out of model.lora.targets"
            )
        speaking = [
            (one, one.weights) for one in self.segments if one.weights is not None and name in one.weights.pairs
        ]
        if not speaking:
            return base(x_NTI)  # type: ignore[no-any-return]  # torch's modules return anything
        if has_grouped_products(x_NTI):
            return self.in_groups(name, base, x_NTI)
        pairs = [tensor for _, weights in speaking for tensor in weights.pairs[name]]
        spans = [(one.start, one.stop, weights.scale) for one, weights in speaking]
        y_NTO: Tensor = _InTurn.apply(x_NTI, base.weight, base.bias, spans, *pairs)  # type: ignore[no-untyped-call]
        return y_NTO

    def in_groups(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """The same with the low-rank products of all adapters at once, ranks filled up to the highest with zeros."""
        x_MI = x_NTI.flatten(0, -2)
        found = [one.weights.pairs.get(name) if one.weights is not None else None for one in self.segments]
        rank = max(-(-pair[0].shape[0] // _ALIGNED) * _ALIGNED for pair in found if pair is not None)
        low_GIR, high_GRO = [], []
        for one, pair in zip(self.segments, found, strict=True):
            if one.weights is None or pair is None:
                low_GIR.append(x_MI.new_zeros(base.in_features, rank))
                high_GRO.append(x_MI.new_zeros(rank, base.out_features))
                continue
            a_RI, b_OR = (tensor.to(x_MI.dtype) for tensor in pair)
            low_GIR.append(nn.functional.pad(a_RI.T, (0, rank - a_RI.shape[0])))
            high_GRO.append(nn.functional.pad(b_OR.T * one.weights.scale, (0, 0, 0, rank - a_RI.shape[0])))
        low_MR = nn.functional.grouped_mm(x_MI, torch.stack(low_GIR), offs=self.ends_G)
        added_MO = nn.functional.grouped_mm(low_MR, torch.stack(high_GRO), offs=self.ends_G)
        y_NTO: Tensor = base(x_NTI)
        return y_NTO + added_MO.view_as(y_NTO)


_ALIGNED = 8
"""Grouped products want rows of a multiple of 16 bytes."""


def has_grouped_products(x_NTI: Tensor) -> bool:
    """Whether torch has grouped matrix products for such a tensor: in bfloat16 on CUDA from compute capability 9 on."""
    if not (x_NTI.is_cuda and x_NTI.dtype == torch.bfloat16 and hasattr(nn.functional, "grouped_mm")):
        return False
    return torch.cuda.get_device_capability(x_NTI.device) >= (9, 0)


Spans = Sequence[tuple[int, int, float]]
"""First token, end and scale of each adapter's tokens."""


class _InTurn(torch.autograd.Function):
    """y = x W' + bias, and y[tokens] += scale x[tokens] A' B' for every adapter."""

    @staticmethod
    def forward(
        ctx: Any, x_NTI: Tensor, weight_OI: Tensor, bias_O: Tensor | None, spans: Spans, *pairs: Tensor
    ) -> Tensor:
        y_NTO = nn.functional.linear(x_NTI, weight_OI, bias_O)
        x_MI, y_MO = x_NTI.flatten(0, -2), y_NTO.flatten(0, -2)
        lows = []
        for (start, stop, scale), a_RI, b_OR in _each(spans, pairs):
            low_MR = x_MI[start:stop] @ a_RI.to(x_MI.dtype).T
            y_MO[start:stop].addmm_(low_MR, b_OR.to(x_MI.dtype).T, alpha=scale)
            lows.append(low_MR)
        ctx.save_for_backward(x_NTI, weight_OI, *lows, *pairs)
        ctx.spans = spans
        return y_NTO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_NTI, weight_OI, *saved = ctx.saved_tensors
        count = len(ctx.spans)
        lows, pairs = saved[:count], saved[count:]
        needs_x = ctx.needs_input_grad[0]
        into_NTI = grads[0] @ weight_OI if needs_x else None
        x_MI, dy_MO = x_NTI.flatten(0, -2), grads[0].flatten(0, -2)
        into_pairs: list[Tensor] = []
        for ((start, stop, scale), a_RI, b_OR), low_MR in zip(_each(ctx.spans, pairs), lows, strict=True):
            dy = dy_MO[start:stop]
            dlow_MR = (dy @ b_OR.to(dy.dtype)).mul_(scale)
            if into_NTI is not None:
                into_NTI.flatten(0, -2)[start:stop].addmm_(dlow_MR, a_RI.to(dy.dtype))
            into_pairs.append((dlow_MR.T @ x_MI[start:stop]).to(a_RI.dtype))
            into_pairs.append((dy.T @ low_MR).mul_(scale).to(b_OR.dtype))
        return into_NTI, None, None, None, *into_pairs


def _each(spans: Spans, pairs: Sequence[Tensor]) -> Any:
    return zip(spans, pairs[::2], pairs[1::2], strict=True)
