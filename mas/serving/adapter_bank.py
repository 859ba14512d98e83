"""The linear layers of one frozen base that add adapters: which rows of a batch use which adapter.

Rows of several tokens are sorted by adapter (`mas.serving.adapter_weights`). Where each row has one token, calls cost
more than products. So adapters lie side by side as if they were one (`Stack`), for rows in any order: all share two
products per layer, and layers that read the same input (queries, keys and values) share the first; a mask takes from
each row the part of every other adapter, exactly.

Leaves out on purpose: dropout (0 in all of mas), biases, and adapters on embeddings.

Shape legend: N rows, T tokens a row, M = N T, I inputs, O outputs, R rank, S sum of all ranks, A adapters.
Source: LoRA, arXiv 2106.09685, section 4: h = W x + (alpha / r) B A x.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mas.config.options import LoraOptions
from mas.core.errors import ModelError
from mas.serving.adapter_weights import AdapterWeights, Mix, Segment, Segments, Siblings, Slices, segments_of

_FAMILIES = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Layers of one module that read one input in most architectures; where they do not, each is computed alone."""

_STACKS = 8
"""Sets of adapters that are kept joined: members of a team speak in turn, and the same ones again."""


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
    """Wraps a model's linear layers once; `routing` says which rows speak with which adapter, in the thread that asks:
    an engine may decode in one thread while a learner computes in another."""

    def __init__(self, model: nn.Module, targets: Sequence[str]) -> None:
        """Freeze the model and wrap every `nn.Linear` whose last name is among `targets`.

        Raises:
            ModelError: a target names no linear layer of the model.
        """
        self._threads = _ThreadMix()
        self._stacks: dict[frozenset[int], Stack] = {}
        self._lock = threading.Lock()
        self.alone = threading.RLock()
        """Held while a thread has changed how the model's layers compute, and while another decodes."""
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
    def routing(self, weights_by_row: Sequence[AdapterWeights | None], width: int = 0) -> Iterator[None]:
        """Within the block, row n uses `weights_by_row[n]`; equal adapters must be neighbours for speed. Without
        gradients. `width`: see `Slices`."""
        with self.alone, self.mixing(Slices(segments_of((weights, 1) for weights in weights_by_row), width)):
            yield

    @contextmanager
    def stacking(self, weights_by_row: Sequence[AdapterWeights | None]) -> Iterator[None]:
        """The same for rows of one token each, in any order and without gradients."""
        speaking = {id(weights): weights for weights in weights_by_row if weights is not None}
        if not speaking:
            with self.alone, self.mixing(None):
                yield
            return
        with self._lock:
            stacked = self._stack(speaking).rows(weights_by_row)
        with self.alone, self.mixing(stacked):
            yield

    @contextmanager
    def segmented(self, segments: Sequence[Segment]) -> Iterator[None]:
        """Within the block, tokens of the flat batch speak as `segments` say, with gradients. Backward belongs inside
        where layers are computed again."""
        with self.mixing(Segments(segments, self.device, self._siblings)):
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

    @property
    def mix(self) -> Mix | None:
        """What the layers add in this thread now; None: nothing."""
        return self._threads.mix

    @contextmanager
    def mixing(self, mix: Mix | None) -> Iterator[None]:
        """Within the block layers add `mix` in this thread: one that was `mix` in another."""
        before, self._threads.mix = self._threads.mix, mix
        try:
            yield
        finally:
            self._threads.mix = before


class _ThreadMix(threading.local):
    """What layers add, thread by thread."""

    mix: Mix | None = None


class Stack:
    """Several adapters, joined once: their weights must not change any more.

    Which layers are computed together is fixed here and not learned from what was seen: a matrix product may round
    otherwise when it is wider, and equal steps must have equal bits, the first one too.

    Args:
        siblings: name of a layer -> all layers that usually read the same input, itself included.
    """

    def __init__(self, adapters: Sequence[AdapterWeights], siblings: Mapping[str, Siblings]) -> None:
        self.places = {id(weights): place for place, weights in enumerate(adapters)}
        self._adapters = tuple(adapters)  # keeps the ids in use
        self._ranks = [weights.options.rank for weights in adapters]
        self._others_AS = _others(self._ranks, adapters[0].parameters()[0].device)
        names = dict.fromkeys(name for weights in adapters for name in weights.pairs)
        self.pairs = {name: self._joined(name) for name in names}
        self._groups: dict[str, tuple[tuple[str, ...], Tensor]] = {}
        for name in names:
            if name not in self._groups:
                group = tuple(one for one, _ in siblings[name] if one in self.pairs) or (name,)
                joined = (group, torch.cat([self.pairs[one][0] for one in group], dim=1))
                self._groups |= dict.fromkeys(group, joined)

    def rows(self, weights_by_row: Sequence[AdapterWeights | None]) -> Stacked:
        """Ready for a batch of these rows."""
        places = [len(self._ranks) if w is None else self.places[id(w)] for w in weights_by_row]
        return Stacked(self, self._others_AS[places] if len(set(places)) > 1 else None)

    def lows(self, leader: str, x_NI: Tensor, masks: Masks) -> dict[str, Tensor]:
        """Masked A x [N, S] of a layer and of its siblings."""
        names, a_IG = self._groups[leader]
        low_NG = x_NI.to(a_IG.dtype) @ a_IG
        if (others_NG := masks.times(len(names))) is not None:
            low_NG.masked_fill_(others_NG, 0.0)
        if len(names) == 1:
            return {leader: low_NG}
        return dict(zip(names, torch.split(low_NG, low_NG.shape[1] // len(names), dim=1), strict=True))

    def _joined(self, name: str) -> tuple[Tensor, Tensor]:
        """A transposed [I, S] and scale * B transposed [S, O]; zeros where an adapter leaves the layer alone.

        They lie as the products read them: with few rows that is most of their speed on a CPU.
        """
        like_a, like_b = next(w.pairs[name] for w in self._adapters if name in w.pairs)
        pairs = []
        for weights, rank in zip(self._adapters, self._ranks, strict=True):
            empty = (like_a.new_zeros(rank, like_a.shape[1]), like_b.new_zeros(like_b.shape[0], rank))
            a_RI, b_OR = weights.pairs.get(name, empty)
            pairs.append((a_RI, b_OR * weights.scale))
        return torch.cat([a.T for a, _ in pairs], dim=1), torch.cat([b.T for _, b in pairs])


def _others(ranks: Sequence[int], device: torch.device) -> Tensor:
    """[A + 1, S]: whether a column is another adapter's; a last row for the bare base, whose own is none."""
    others_AS = torch.ones(len(ranks) + 1, sum(ranks), dtype=torch.bool, device=device)
    begin = 0
    for place, rank in enumerate(ranks):
        others_AS[place, begin : begin + rank] = False
        begin += rank
    return others_AS


class Masks:
    """Which columns are not those of the row's adapter [N, S], side by side as often as wanted; None: all are."""

    def __init__(self, mask_NS: Tensor | None) -> None:
        self._mask_NS = mask_NS
        self._wide: dict[int, Tensor] = {}

    def times(self, count: int) -> Tensor | None:
        """The mask for `count` layers at once."""
        if self._mask_NS is None:
            return None
        if count not in self._wide:
            self._wide[count] = self._mask_NS.repeat(1, count)
        return self._wide[count]


class Stacked:
    """A stack with the rows of one forward pass, which remembers what it has read."""

    def __init__(self, stack: Stack, mask_NS: Tensor | None) -> None:
        self.stack = stack
        self._masks = Masks(mask_NS)
        self._read: Tensor | None = None
        self._lows: dict[str, Tensor] = {}

    def linear(self, name: str, base: nn.Linear, x_NTI: Tensor) -> Tensor:
        """As in `Mix`, for rows of one token."""
        y_NTO: Tensor = base(x_NTI)
        pair = self.stack.pairs.get(name)
        if pair is None:
            return y_NTO
        x_NI, y_NO = x_NTI.flatten(0, -2), y_NTO.view(-1, y_NTO.shape[-1])  # some layers get all rows as one list
        if x_NTI is not self._read:
            self._read = x_NTI
            self._lows = self.stack.lows(name, x_NI, self._masks)
        elif name not in self._lows:
            self._lows |= self.stack.lows(name, x_NI, self._masks)
        b_SO = pair[1]
        if y_NTO.dtype == b_SO.dtype:
            y_NO.addmm_(self._lows[name], b_SO)
            return y_NTO
        return torch.addmm(y_NO.to(b_SO.dtype), self._lows[name], b_SO).to(y_NTO.dtype).view_as(y_NTO)
