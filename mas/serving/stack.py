"""Adapters side by side as if they were one, for rows of one token each in any order.

Where each row has one token, calls cost more than products. So all adapters share two products per layer, and layers
that read the same input (queries, keys and values) share the first; a mask takes from each row the part of every other
adapter, exactly.

Shape legend: N rows, I inputs, O outputs, S sum of all ranks, A adapters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mas.serving.weights import AdapterWeights


class Stack:
    """Several adapters, joined once for as long as these speak."""

    def __init__(self, adapters: Sequence[AdapterWeights]) -> None:
        self.places = {id(weights): place for place, weights in enumerate(adapters)}
        self._adapters = tuple(adapters)  # keeps the ids in use
        self._ranks = [weights.options.rank for weights in adapters]
        names = dict.fromkeys(name for weights in adapters for name in weights.pairs)
        self.pairs = {name: self._joined(name) for name in names}
        self._groups: dict[str, tuple[tuple[str, ...], Tensor]] = {
            name: ((name,), self.pairs[name][0]) for name in names
        }

    def mask(self, weights_by_row: Sequence[AdapterWeights | None]) -> Tensor:
        """[N, S]: 1 where the column belongs to the row's adapter."""
        own_AS = torch.zeros(len(self._ranks) + 1, sum(self._ranks), device=self._adapters[0].parameters()[0].device)
        begin = 0
        for place, rank in enumerate(self._ranks):
            own_AS[place, begin : begin + rank] = 1.0
            begin += rank
        return own_AS[[len(self._ranks) if w is None else self.places[id(w)] for w in weights_by_row]]

    def lows(self, leader: str, x_NI: Tensor, mask_NS: Tensor) -> dict[str, Tensor]:
        """Masked A x [N, S] of a layer and of those known to read the same input."""
        names, a_GI = self._groups[leader]
        low_NG = torch.nn.functional.linear(x_NI.to(a_GI.dtype), a_GI).mul_(mask_NS.repeat(1, len(names)))
        return dict(zip(names, torch.split(low_NG, mask_NS.shape[1], dim=1), strict=True))

    def group(self, leader: str, name: str) -> None:
        """From now on `name` is read with `leader`, whose input it shares."""
        names = (*self._groups[leader][0], name)
        self._groups[leader] = (names, torch.cat([self.pairs[one][0] for one in names]))

    def _joined(self, name: str) -> tuple[Tensor, Tensor]:
        """A [S, I] and scale * B transposed [S, O]; zeros where an adapter leaves the layer alone."""
        like_a, like_b = next(w.pairs[name] for w in self._adapters if name in w.pairs)
        pairs = []
        for weights, rank in zip(self._adapters, self._ranks, strict=True):
            empty = (like_a.new_zeros(rank, like_a.shape[1]), like_b.new_zeros(like_b.shape[0], rank))
            a_RI, b_OR = weights.pairs.get(name, empty)
            pairs.append((a_RI, b_OR * weights.scale))
        return torch.cat([a for a, _ in pairs]), torch.cat([b.T for _, b in pairs])


@dataclass(slots=True)
class Stacked:
    """A stack with the rows of one forward pass, which remembers what it has read."""

    stack: Stack
    mask_NS: Tensor
    _read: Tensor | None = None
    _leader: str = ""
    _lows: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, x_NTI: Tensor, y_NTO: Tensor) -> Tensor:
        """As in `Mix`; the sum may lie where `y` lay."""
        if name not in self.stack.pairs:
            return y_NTO
        if x_NTI is not self._read:
            self._read, self._leader = x_NTI, name
            self._lows = self.stack.lows(name, x_NTI[:, 0], self.mask_NS)
        elif name not in self._lows:
            self.stack.group(self._leader, name)
            self._lows |= self.stack.lows(name, x_NTI[:, 0], self.mask_NS)
        b_SO = self.stack.pairs[name][1]
        if y_NTO.dtype == b_SO.dtype:
            y_NTO[:, 0].addmm_(self._lows[name], b_SO)
            return y_NTO
        return torch.addmm(y_NTO[:, 0].to(b_SO.dtype), self._lows[name], b_SO).to(y_NTO.dtype)[:, None]
