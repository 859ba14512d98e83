"""Sequences that begin alike as trees: tokens that several have in common stand once. Free of torch."""

from collections.abc import Sequence
from dataclasses import dataclass

Ids = tuple[int, ...]


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
    """Sequences that share nothing hang from no common root.

    Args:
        sequences: sorted.
    """
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
