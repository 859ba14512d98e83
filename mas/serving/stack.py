"""Adapters side by side as if they were one, for rows of one token each in any order.

Where each row has one token, calls cost more than products. So all adapters share two products per layer, and layers
that read the same input (queries, keys and values) share the first; a mask takes from each row the part of every other
adapter, exactly.

Shape legend: N rows, I inputs, O outputs, S sum of all ranks, A adapters.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from mas.serving.grouped import Siblings
from mas.serving.weights import AdapterWeights


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

    def rows(self, weights_by_row: Sequence[AdapterWeights | None]) -> "Stacked":
        """Ready for a batch of these rows."""
        places = [len(self._ranks) if w is None else self.places[id(w)] for w in weights_by_row]
        return Stacked(self, self._others_AS[places] if len(set(places)) > 1 else None)

    def lows(self, leader: str, x_NI: Tensor, masks: "Masks") -> dict[str, Tensor]:
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
        if x_NTI is not self._read:
            self._read = x_NTI
            self._lows = self.stack.lows(name, x_NTI[:, 0], self._masks)
        elif name not in self._lows:
            self._lows |= self.stack.lows(name, x_NTI[:, 0], self._masks)
        b_SO = pair[1]
        if y_NTO.dtype == b_SO.dtype:
            y_NTO[:, 0].addmm_(self._lows[name], b_SO)
            return y_NTO
        return torch.addmm(y_NTO[:, 0].to(b_SO.dtype), self._lows[name], b_SO).to(y_NTO.dtype)[:, None]
