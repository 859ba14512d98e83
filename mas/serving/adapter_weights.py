"""The weights of LoRA adapters, and what they add to a linear layer where a batch has tokens of many adapters.

Rows or tokens are sorted by adapter. The base's product is computed once for all of them, and each adapter adds its own
low-rank product to its own part, in place: `Slices` without gradients, `Segments` where a batch is trained, whose
backward does the same with the gradients. No adapter's weights touch another adapter's tokens, so its gradient cannot
either. On CUDA the low-rank products of all adapters are grouped matrix products where torch has them.

Shape legend: N rows of T tokens, M = N T, I inputs, O outputs, R rank; G segments.
Source: LoRA, arXiv 2106.09685, section 4: h = W x + (alpha / r) B A x.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from mas.config.options import LoraOptions
from mas.core.errors import ModelError

Siblings = Sequence[tuple[str, nn.Linear]]
"""Layers that read one input, by name."""
_ALIGNED = 8
"""Grouped products want rows of a multiple of 16 bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class AdapterWeights:
    """One adapter: per layer name the pair A [R, I], B [O, R]. `options` gives rank and scale."""

    options: LoraOptions
    pairs: Mapping[str, tuple[Tensor, Tensor]] = field(repr=False)

    @property
    def scale(self) -> float:
        """alpha / rank."""
        return self.options.alpha / self.options.rank

    def parameters(self) -> list[Tensor]:
        """All tensors in a fixed order: A then B, layer by layer."""
        return [tensor for pair in self.pairs.values() for tensor in pair]

    def approach(self, other: AdapterWeights, share: float) -> None:
        """Move every number by this share of its distance to that of the other adapter, in place."""
        with torch.no_grad():
            for mine, its in zip(self.parameters(), other.parameters(), strict=True):
                mine.lerp_(its, share)

    def snapshot(self) -> AdapterWeights:
        """A frozen copy that later training cannot change."""
        return AdapterWeights(
            self.options, {name: (a.detach().clone(), b.detach().clone()) for name, (a, b) in self.pairs.items()}
        )


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows or tokens `start` to `stop` of a batch speak with `weights`; None: the bare base."""

    weights: AdapterWeights | None
    start: int
    stop: int


def segments_of(counts: Iterable[tuple[AdapterWeights | None, int]]) -> tuple[Segment, ...]:
    """Adapters, each with how many rows or tokens it has, in order; neighbours of one adapter are one segment."""
    found: list[Segment] = []
    for weights, count in counts:
        start = found[-1].stop if found else 0
        stop = start + count
        if found and found[-1].weights is weights:
            start = found.pop().start
        found.append(Segment(weights, start, stop))
    return tuple(found)


class Mix(Protocol):
    """Which adapter computes which rows of a batch."""

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """The layer `name` of `x`: the base's product with every token's own low-rank product added, [N, T, O]."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Rows sorted by adapter: one pair of products per slice, in place. Without gradients.

    `width`: tokens of each row, for layers that get the tokens of all rows as one list; 0: not known.
    """

    routes: tuple[Segment, ...]
    width: int = 0

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        y_NTO: Tensor = base(x_NTI)
        if all(route.weights is None or name not in route.weights.pairs for route in self.routes):
            return y_NTO
        tokens = x_NTI.shape[1] if x_NTI.dim() > 2 else self.width
        x_MI, y_MO = x_NTI.flatten(0, -2), y_NTO.view(-1, y_NTO.shape[-1])
        if self.routes[-1].stop * tokens != len(x_MI):
            raise ModelError(
                f"adapter routes cover {self.routes[-1].stop} rows of {tokens} tokens, layer {name!r} was given "
                f"{len(x_MI)} tokens"
            )
        for route in self.routes:
            if route.weights is not None and name in route.weights.pairs:
                rows = slice(route.start * tokens, route.stop * tokens)
                _add(name, route.weights, x_MI[rows], y_MO[rows])
        return y_NTO


def _add(name: str, weights: AdapterWeights, x_MI: Tensor, y_MO: Tensor) -> None:
    a_RI, b_OR = weights.pairs[name]
    low = x_MI.to(a_RI.dtype) @ a_RI.T
    if y_MO.dtype == b_OR.dtype:
        y_MO.addmm_(low, b_OR.T, alpha=weights.scale)
    else:
        y_MO.copy_(torch.addmm(y_MO.to(b_OR.dtype), low, b_OR.T, alpha=weights.scale))


class Segments:
    """Which adapter computes which tokens of a batch that is trained; covers all of them in order.

    Layers that read one input are computed together when the first of them is asked for: their low-rank products share
    it, forward and backward.

    Args:
        siblings: name of a layer -> all layers that usually read the same input, itself included.
    """

    def __init__(self, segments: Sequence[Segment], device: torch.device, siblings: Mapping[str, Siblings]) -> None:
        self.segments = tuple(segments)
        self.ends_G = torch.tensor([one.stop for one in segments], dtype=torch.int32, device=device)
        self._siblings = siblings
        self._ahead: dict[str, tuple[Tensor, Tensor]] = {}

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """The layer `name` of every token with its adapter, [N, T, O]."""
        tokens = x_NTI.shape[:-1].numel()
        if self.segments[-1].stop != tokens:
            raise ModelError(
                f"layer {name!r} was given {tokens} of {self.segments[-1].stop} tokens: a layer that not every token "
                "passes (an expert) cannot be trained; leave it out of model.lora.targets"
            )
        read, y_NTO = self._ahead.pop(name, (None, x_NTI))
        if read is x_NTI:
            return y_NTO
        if not self._is_used(name):
            return base(x_NTI)  # type: ignore[no-any-return]  # torch's modules return anything
        if has_grouped_products(x_NTI):
            return self.in_groups(name, base, x_NTI)
        layers = [(one, layer) for one, layer in self._siblings.get(name, ()) if self._is_used(one)]
        return self._in_turn(name, layers or [(name, base)], x_NTI)

    def _is_used(self, name: str) -> bool:
        return any(one.weights is not None and name in one.weights.pairs for one in self.segments)

    def _in_turn(self, name: str, layers: Siblings, x_NTI: Tensor) -> Tensor:
        """One adapter after the other; what other layers make of this input is kept for them."""
        spans, pairs = [], []
        for one in self.segments:
            own = () if one.weights is None else one.weights.pairs
            places = tuple(place for place, (layer, _) in enumerate(layers) if layer in own)
            if one.weights is not None and places:
                spans.append(AdapterSpan(one.start, one.stop, one.weights.scale, places))
                pairs += [tensor for place in places for tensor in one.weights.pairs[layers[place][0]]]
        found: tuple[Tensor, ...] = _InTurn.apply(x_NTI, [base for _, base in layers], spans, *pairs)  # type: ignore[no-untyped-call]
        named = {layer: (x_NTI, y_NTO) for (layer, _), y_NTO in zip(layers, found, strict=True)}
        _, y_NTO = named.pop(name)
        self._ahead.update(named)
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


def has_grouped_products(x_NTI: Tensor) -> bool:
    """Whether torch has grouped matrix products for such a tensor: in bfloat16 on CUDA from compute capability 9 on."""
    if not (x_NTI.is_cuda and x_NTI.dtype == torch.bfloat16 and hasattr(nn.functional, "grouped_mm")):
        return False
    return torch.cuda.get_device_capability(x_NTI.device) >= (9, 0)


@dataclass(frozen=True, slots=True)
class AdapterSpan:
    """First token, end and scale of an adapter's tokens, and which of the layers it changes."""

    start: int
    stop: int
    scale: float
    places: tuple[int, ...]


class _InTurn(torch.autograd.Function):
    """y = x W' + bias for every layer, and y[tokens] += scale x[tokens] A' B' for every adapter.

    An adapter's A of all layers are one matrix, so that its tokens are read once.
    """

    @staticmethod
    def forward(
        ctx: Any, x_NTI: Tensor, layers: Sequence[nn.Linear], spans: Sequence[AdapterSpan], *pairs: Tensor
    ) -> tuple[Tensor, ...]:
        found = tuple(nn.functional.linear(x_NTI, layer.weight, layer.bias) for layer in layers)
        x_MI, found_MO = x_NTI.flatten(0, -2), [y_NTO.flatten(0, -2) for y_NTO in found]
        lows = []
        for span, (downs, ups) in zip(spans, _each(spans, pairs, x_NTI.dtype), strict=True):
            low_MR = x_MI[span.start : span.stop] @ torch.cat(downs).T
            parts = torch.split(low_MR, [len(a_RI) for a_RI in downs], dim=1)
            for place, part_MR, b_OR in zip(span.places, parts, ups, strict=True):
                found_MO[place][span.start : span.stop].addmm_(part_MR, b_OR.T, alpha=span.scale)
            lows.append(low_MR)
        ctx.save_for_backward(x_NTI, *lows, *pairs)
        ctx.layers, ctx.spans = layers, spans
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_NTI, *saved = ctx.saved_tensors
        spans = ctx.spans
        lows, pairs = saved[: len(spans)], saved[len(spans) :]
        grads_MO = [grad.flatten(0, -2) for grad in grads]
        into_MI = None
        if ctx.needs_input_grad[0]:
            into_MI = grads_MO[0] @ ctx.layers[0].weight
            for dy_MO, layer in zip(grads_MO[1:], ctx.layers[1:], strict=True):
                into_MI.addmm_(dy_MO, layer.weight)
        into_pairs: list[Tensor] = []
        dtypes = [tensor.dtype for tensor in pairs]
        x_MI = x_NTI.flatten(0, -2)
        for span, low_MR, (downs, ups) in zip(spans, lows, _each(spans, pairs, x_NTI.dtype), strict=True):
            tokens, ranks = slice(span.start, span.stop), [len(a_RI) for a_RI in downs]
            slopes = [grads_MO[place][tokens] for place in span.places]
            dlow_MR = torch.cat([dy @ b_OR for dy, b_OR in zip(slopes, ups, strict=True)], 1).mul_(span.scale)
            if into_MI is not None:
                into_MI[tokens].addmm_(dlow_MR, torch.cat(downs))
            into_downs = torch.split(dlow_MR.T @ x_MI[tokens], ranks)
            for into_RI, low, dy in zip(into_downs, torch.split(low_MR, ranks, dim=1), slopes, strict=True):
                into_OR = (low.T @ dy).mul_(span.scale).T  # the other way round is twice as slow on a CPU
                into_pairs += [into_RI, into_OR.contiguous()]
        into_pairs = [into.to(dtype) for into, dtype in zip(into_pairs, dtypes, strict=True)]
        return None if into_MI is None else into_MI.view_as(x_NTI), None, None, *into_pairs


def _each(
    spans: Sequence[AdapterSpan], pairs: Sequence[Tensor], dtype: torch.dtype
) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """The A and the B of every span's layers."""
    start = 0
    for span in spans:
        stop = start + 2 * len(span.places)
        yield [a_RI.to(dtype) for a_RI in pairs[start:stop:2]], [b_OR.to(dtype) for b_OR in pairs[start + 1 : stop : 2]]
        start = stop
