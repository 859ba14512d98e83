"""Which token sees which, for many sequences in one row: trees of tokens, the layout of a packed batch, and its parts
for attention.

Tokens that sequences begin with in common stand once. A layout is a forest in depth-first order; `ends[k]` is one past
the last token that may see token k. Runs of tokens without a branch are spans. Attention is then a sum of parts of
three kinds: a long span to itself, causally; all that hangs from a span to the whole of it, without a mask; and blocks
of neighbouring short subtrees to themselves, with a mask of the block's size. Nothing is computed twice, and nothing is
quadratic in the whole.

Shape legend: M tokens.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

Ids = tuple[int, ...]
_SHORT = 64
"""Subtrees of at most so many tokens go into blocks of as many. Parts with more queries are computed one by one: to
gather them would cost more than it saves."""
_FINE = 8
"""Other lengths are rounded up to a multiple of the least power of two that is more than an eighth of them: parts of
about one length go together."""
_BLOCK = 128
"""Tokens of a block of flex attention."""
Place = slice | Tensor
"""Tokens of a part: neighbours, or the indices of several rows one after the other."""


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Sorted sequences, token by token in depth-first order.

    Attributes:
        ids, positions: of each token; a position counts from the beginning of its sequence.
        ends: for each token one past the last token that may see it.
        paths: for each sequence the places of its tokens, in order.
    """

    ids: Ids
    positions: Ids
    ends: Ids
    paths: tuple[Ids, ...]


def tree_of(sequences: Sequence[Ids]) -> TokenTree:
    """Sequences that share nothing hang from no common root. `sequences`: sorted."""
    ids: list[int] = []
    positions: list[int] = []
    ends: list[int] = []
    path: list[int] = []
    paths: list[Ids] = []
    before: Ids = ()
    for line in sequences:
        shared = common(before, line)
        for place in path[shared:]:
            ends[place] = len(ids)
        new = range(len(ids), len(ids) + len(line) - shared)
        path[shared:] = new
        ids += line[shared:]
        positions += range(shared, len(line))
        ends += [0] * len(new)
        paths.append(tuple(path))
        before = line
    for place in path:
        ends[place] = len(ids)
    return TokenTree(tuple(ids), tuple(positions), tuple(ends), tuple(paths))


def common(first: Ids, second: Ids) -> int:
    """How many tokens two sequences begin with in common."""
    longest = min(len(first), len(second))
    if first[:longest] == second[:longest]:
        return longest
    return next(place for place in range(longest) if first[place] != second[place])


@dataclass(frozen=True, slots=True)
class TreeSpan:
    """Tokens `start` to `stop` without a branch; those up to `end` hang from it, and it hangs from `level` others."""

    start: int
    stop: int
    end: int
    level: int


@dataclass(frozen=True, slots=True)
class AttentionPart:
    """Attention of `rows` rows of queries to as many rows of keys, all of one length each.

    `queries`, `keys`: which tokens; where a row is shorter than the others, its last token is repeated.
    `real` are the entries of `queries` that are no repetition; None: all are.
    `is_first`: the queries have met no keys before; every token is such a query once, in the first parts.
    `is_causal`: query s of a row sees keys 0 to s of it; `mask_B1SS`: 0 where it sees a key, else minus infinity;
    neither: it sees all of them.
    """

    rows: int
    queries: Place
    keys: Place
    real: Tensor | None
    is_first: bool
    is_causal: bool = False
    mask_B1SS: Tensor | None = None


class PackedLayout:
    """The forest of a packed batch.

    Args:
        positions: of every token in its own sequence, from 0.
        ends: for every token one past the last token that may see it.
    """

    def __init__(self, positions: Sequence[int], ends: Sequence[int], device: torch.device) -> None:
        self.positions = positions
        self.ends = ends
        self.device = device
        self.longest = max(positions) + 1
        self._block_masks: dict[int | None, BlockMask] = {}
        self._masks: dict[tuple[int, int, int | None], Tensor] = {}
        self.positions_M = torch.tensor(positions, device=device)
        self.ends_M = torch.tensor(ends, device=device)

    @cached_property
    def spans(self) -> list[TreeSpan]:
        """All spans in order."""
        spans: list[TreeSpan] = []
        above: list[TreeSpan] = []
        start, positions, ends = 0, self.positions, self.ends
        for stop in range(1, len(ends) + 1):
            if stop == len(ends) or positions[stop] != positions[stop - 1] + 1 or ends[stop] != ends[stop - 1]:
                while above and above[-1].end <= start:
                    above.pop()
                above.append(TreeSpan(start, stop, ends[start], len(above)))
                spans.append(above[-1])
                start = stop
        return spans

    @cached_property
    def trees(self) -> list[tuple[int, int]]:
        """First token and end of every tree."""
        found = []
        start = 0
        while start < len(self.ends):
            found.append((start, self.ends[start]))
            start = self.ends[start]
        return found

    def prepare(self) -> None:
        """Work out the parts now, if attention on this device takes them, so that no layer has to."""
        if self.device.type == "cpu":
            _ = self.parts

    @cached_property
    def parts(self) -> list[AttentionPart]:
        """All parts, the first ones first."""
        blocks: list[tuple[int, int]] = []
        alone: dict[tuple[int, int], list[TreeSpan]] = defaultdict(list)
        under: dict[tuple[int, int, int, int], list[TreeSpan]] = defaultdict(list)
        done = 0
        for span in self.spans:
            if span.start < done:
                continue
            if span.end - span.start <= _SHORT:
                done = span.end
                joins = blocks and blocks[-1][1] == span.start and done - blocks[-1][0] <= _SHORT
                blocks.append((blocks.pop()[0] if joins else span.start, done))
                continue
            own, below = span.stop - span.start, span.end - span.stop
            alone[rounded(own), span.start if own > _SHORT else -1].append(span)
            if below:
                under[span.level, own, rounded(below), span.start if below > _SHORT else -1].append(span)
        parts = [self._block(blocks)] if blocks else []
        parts += [self._part([(span.start, span.stop) for span in spans]) for _, spans in sorted(alone.items())]
        for _, spans in sorted(under.items()):
            keys = [(span.start, span.stop) for span in spans]
            parts.append(self._part([(span.stop, span.end) for span in spans], keys))
        return parts

    def _block(self, ranges: Sequence[tuple[int, int]]) -> AttentionPart:
        """Rows of neighbouring subtrees that see only themselves."""
        width = max(stop - start for start, stop in ranges)
        part = self._part(ranges)
        index = part.queries if isinstance(part.queries, Tensor) else torch.arange(*ranges[0], device=self.device)
        index_BS = index.view(len(ranges), width)
        ends_BS = self.ends_M[index_BS]
        sees_BSS = (index_BS[:, None] <= index_BS[:, :, None]) & (index_BS[:, :, None] < ends_BS[:, None])
        lengths_B = torch.tensor([stop - start for start, stop in ranges], device=self.device)
        sees_BSS &= torch.arange(width, device=self.device) < lengths_B[:, None, None]
        mask_B1SS = torch.zeros(sees_BSS.shape, device=self.device).masked_fill_(~sees_BSS, -torch.inf)[:, None]
        return replace(part, is_causal=False, mask_B1SS=mask_B1SS)

    def _part(self, queries: Sequence[tuple[int, int]], keys: Sequence[tuple[int, int]] | None = None) -> AttentionPart:
        """Rows of queries that see the rows of `keys`, None: themselves, causally."""
        width = max(stop - start for start, stop in queries)
        places = self._places(queries, width)
        seen = places if keys is None else self._places(keys, keys[0][1] - keys[0][0])
        lengths = [stop - start for start, stop in queries]
        real = None
        if min(lengths) < width:
            flat = [row * width + place for row, length in enumerate(lengths) for place in range(length)]
            real = torch.tensor(flat, device=self.device)
        return AttentionPart(len(queries), places, seen, real, is_first=keys is None, is_causal=keys is None)

    def _places(self, ranges: Sequence[tuple[int, int]], width: int) -> Place:
        if len(ranges) == 1:
            return slice(*ranges[0])
        rows = [[*range(start, stop), *[stop - 1] * (width - stop + start)] for start, stop in ranges]
        return torch.tensor(rows, device=self.device).flatten()

    def block_mask(self, window: int | None = None) -> BlockMask:
        """The forest as flex attention wants it, with paths that end after `window` tokens; None: they do not."""
        if window not in self._block_masks:
            self._block_masks[window] = self._make_block_mask(window)
        return self._block_masks[window]

    def _make_block_mask(self, window: int | None) -> BlockMask:
        ends_M, positions_M, tokens = self.ends_M, self.positions_M, len(self.ends)

        def sees(_batch: Tensor, _head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            is_seen: Tensor = (key <= query) & (query < ends_M[key])
            return is_seen if window is None else is_seen & (positions_M[query] - positions_M[key] < window)

        # Block by block: torch's own `create_block_mask` makes a mask of all tokens by all tokens first.
        blocks = -(-tokens // _BLOCK)
        ends_BS = torch.nn.functional.pad(ends_M, (0, blocks * _BLOCK - tokens)).view(blocks, _BLOCK)
        first_B = torch.arange(blocks, device=self.device) * _BLOCK
        some_BB = (ends_BS.amax(1) > first_B[:, None]).tril()
        full_BB = (ends_BS.amin(1) >= first_B[:, None] + _BLOCK).tril(-1)
        if window is not None:  # a block may hold the end of a path
            full_BB = torch.zeros_like(full_BB)
        return BlockMask.from_kv_blocks(
            *_ordered(some_BB & ~full_BB), *_ordered(full_BB), _BLOCK, sees, seq_lengths=(tokens, tokens)
        )

    def mask(self, start: int, stop: int, window: int | None) -> Tensor:
        """Whether query q sees key k, both from `start` to `stop`, [stop - start, stop - start]; no further back than
        `window` tokens, itself included."""
        key = start, stop, window
        if key not in self._masks:
            self._masks[key] = self._make_mask(start, stop, window)
        return self._masks[key]

    def _make_mask(self, start: int, stop: int, window: int | None) -> Tensor:
        place_T = torch.arange(start, stop, device=self.device)
        seen_TT = (place_T[None] <= place_T[:, None]) & (place_T[:, None] < self.ends_M[None, start:stop])
        if window is not None:
            positions_T = self.positions_M[start:stop]
            seen_TT &= positions_T[:, None] - positions_T[None] < window
        return seen_TT


def rounded(length: int) -> int:
    """The width of the parts that a length goes to: less than a fourth more."""
    step = 1
    while step * _FINE <= length:
        step *= 2
    return -(-length // step) * step


def _ordered(seen_BB: Tensor) -> tuple[Tensor, Tensor]:
    """For each block of queries how many blocks of keys it sees, and all blocks, those first."""
    order_BB = seen_BB.int().argsort(dim=-1, descending=True, stable=True).int()
    return seen_BB.sum(-1, dtype=torch.int32)[None, None], order_BB[None, None]
