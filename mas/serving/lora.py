"""Grouped LoRA: rows of many adapters in one batch, over one frozen base.

Rows are sorted by adapter; the base product is computed once for all rows and each adapter adds its own low-rank
product to its slice. No adapter's weights touch another adapter's rows, so its gradient cannot either.

Leaves out on purpose: dropout (0 in all of mas), biases, and adapters on embeddings.

Shape legend: N rows, T tokens a row, M = N T, I inputs, O outputs, R rank.
Source: LoRA, arXiv 2106.09685, section 4: h = W x + (alpha / r) B A x.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from mas.config.options import LoraOptions
from mas.core.errors import ModelError
from mas.serving.grouped import Segment, Segments, segments_of
from mas.serving.stack import Stack
from mas.serving.weights import AdapterWeights

_FAMILIES = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that read one input in most architectures; where they do not, each is computed alone."""

_STACKS = 8
"""Sets of adapters that are kept joined: members of a team speak in turn, and the same ones again."""


class Mix(Protocol):
    """Who speaks in which rows of a batch."""

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """The layer `name` of `x`: the base's product with every token's own low-rank product added, [N, T, O]."""


@dataclass(frozen=True, slots=True)
class Slices:
    """Rows sorted by adapter: one pair of products per slice, in place. Without gradients."""

    routes: tuple[Segment, ...]

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        y_NTO: Tensor = base(x_NTI)
        if all(route.weights is None or name not in route.weights.pairs for route in self.routes):
            return y_NTO
        if self.routes[-1].stop != x_NTI.shape[0]:
            raise ModelError(f"adapter routes cover {self.routes[-1].stop} rows, the batch has {x_NTI.shape[0]}")
        x_MI, y_MO, tokens = x_NTI.flatten(0, 1), y_NTO.view(-1, y_NTO.shape[-1]), x_NTI.shape[1]
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


class LoraLinear(nn.Module):
    """A frozen linear layer that adds each row's adapter."""

    def __init__(self, base: nn.Linear, bank: AdapterBank, name: str) -> None:
        super().__init__()
        self.base = base
        self.bank = bank
        self.name = name

    def forward(self, x_NTI: Tensor) -> Tensor:
        """[N, T, I] -> [N, T, O]."""
        mix = self.bank.mix
        if mix is None:
            return self.base(x_NTI)  # type: ignore[no-any-return]
        return mix.linear(self.name, self.base, x_NTI)


class AdapterBank:
    """Wraps a model's linear layers once; `routing` says which rows speak with which adapter."""

    def __init__(self, model: nn.Module, targets: Sequence[str]) -> None:
        """Freeze the model and wrap every `nn.Linear` whose last name is among `targets`.

        Raises:
            ModelError: a target names no linear layer of the model.
        """
        self.mix: Mix | None = None
        self._stacks: dict[frozenset[int], Stack] = {}
        self._lock = threading.RLock()
        self.shapes: dict[str, tuple[int, int]] = {}
        self._siblings: dict[str, list[tuple[str, nn.Linear]]] = {}
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        found = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        missing = set(targets) - {name.rpartition(".")[2] for name, _ in found}
        if missing:
            possible = sorted({name.rpartition(".")[2] for name, _ in found})
            raise ModelError(f"LoRA targets {sorted(missing)} name no linear layer; possible: {possible}")
        for name, layer in found:
            parent, _, last = name.rpartition(".")
            if last in targets:
                self.shapes[name] = (layer.in_features, layer.out_features)
                setattr(model.get_submodule(parent), last, LoraLinear(layer, self, name))
        wrapped = {name: layer for name, layer in found if name in self.shapes}
        for name in wrapped:
            parent, dot, last = name.rpartition(".")
            family = next((family for family in _FAMILIES if last in family), ())
            named = [f"{parent}{dot}{one}" for one in family]
            self._siblings[name] = [(one, wrapped[one]) for one in named if one in wrapped]
        model.eval()
        self.device = next(model.parameters()).device

    def create(self, options: LoraOptions, seed: int) -> AdapterWeights:
        """A new adapter in float32 that changes nothing yet: A uniform as in PEFT (Kaiming, a = sqrt 5), B zero."""
        generator = torch.Generator().manual_seed(seed)
        pairs = {}
        for name, (inputs, outputs) in self.shapes.items():
            if name.rpartition(".")[2] not in options.targets:
                continue
            bound = 1 / math.sqrt(inputs)
            a_RI = (torch.rand(options.rank, inputs, generator=generator) * 2 - 1) * bound
            pairs[name] = (a_RI.to(self.device), torch.zeros(outputs, options.rank, device=self.device))
        return AdapterWeights(options, pairs)

    @contextmanager
    def routing(self, weights_by_row: Sequence[AdapterWeights | None]) -> Iterator[None]:
        """Within the block, row n speaks with `weights_by_row[n]`; equal adapters must be neighbours for speed. Without
        gradients."""
        with self._mixing(Slices(segments_of((weights, 1) for weights in weights_by_row))):
            yield

    @contextmanager
    def stacking(self, weights_by_row: Sequence[AdapterWeights | None]) -> Iterator[None]:
        """The same for rows of one token each, in any order and without gradients."""
        speaking = {id(weights): weights for weights in weights_by_row if weights is not None}
        if not speaking:
            with self._mixing(None):
                yield
            return
        with self._lock, self._mixing(self._stack(speaking).rows(weights_by_row)):
            yield

    @contextmanager
    def segmented(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Within the block, tokens of the flat batch speak as `segments` say, with gradients. Backward belongs inside
        where layers are computed again."""
        with self._mixing(Segments(segments, self.device, self._siblings)):
            yield

    def _stack(self, speaking: dict[int, AdapterWeights]) -> Stack:
        """These adapters joined, in an order that depends on nothing but what they hold."""
        key = frozenset(speaking)
        stack = self._stacks.pop(key, None)
        if stack is None:
            adapters = sorted(speaking.values(), key=lambda weights: [float(a.sum()) for a in weights.parameters()])
            stack = Stack(adapters, self._siblings)
        self._stacks[key] = stack  # the one used last is last
        if len(self._stacks) > _STACKS:
            del self._stacks[next(iter(self._stacks))]
        return stack

    def forget(self, weights: AdapterWeights) -> None:
        """Keep nothing that was made of an adapter that will not speak again."""
        with self._lock:
            self._stacks = {key: stack for key, stack in self._stacks.items() if id(weights) not in key}

    def check(self, weights: AdapterWeights) -> None:
        """Refuse an adapter that would break a batch.

        Raises:
            ModelError: a layer or shape that the model does not have, or a number that is none.
        """
        for name, (a_RI, b_OR) in weights.pairs.items():
            have = (a_RI.shape[1], b_OR.shape[0])
            if self.shapes.get(name) != have:
                wanted = self.shapes.get(name, "no such layer among its targets")
                raise ModelError(f"the adapter's layer {name!r} is {have} inputs and outputs, the model has {wanted}")
            if not (torch.isfinite(a_RI).all() and torch.isfinite(b_OR).all()):
                raise ModelError(f"the adapter's layer {name!r} holds NaN or infinity")

    @contextmanager
    def _mixing(self, mix: Mix | None) -> Iterator[None]:
        with self._lock:  # an engine's thread may still decode for a requester that has gone
            before, self.mix = self.mix, mix
            try:
                yield
            finally:
                self.mix = before
