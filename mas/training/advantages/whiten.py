"""Normalising over a whole batch, of all agents or of each by itself."""

import math
from collections.abc import Hashable, Sequence
from typing import Literal

from mas.training.advantages.members import check_finite, check_lengths, members

TINY = 1e-8
Guard = Literal["variance", "std"]


def whiten(
    values: Sequence[float],
    keys: Sequence[Hashable] | None = None,
    *,
    tokens: Sequence[int] | None = None,
    guard: Guard = "variance",
) -> list[float]:
    """(x - mean) / spread over all values that have the same key; exactly 0 where they are all equal or one alone.

    The spread has ddof 1. `variance`: sqrt(var + 1e-8) (REINFORCE++); `std`: sqrt(var) + 1e-8 (CoMAS).
    Source: REINFORCE++, arXiv 2501.03262 (returns of tokens, over all tokens of the batch); CoMAS, arXiv 2510.08529
    (key: agent).

    Args:
        values: N scalars: of rows, or of single tokens one after the other.
        keys: N buffers, e.g. agents or adapters; None: one for all.
        tokens: how many tokens have the value; mean and spread are then those over tokens. None: one each.

    Raises:
        ValueError: lengths differ, a value is no number between -1e90 and 1e90, or a count of tokens is negative.
    """
    check_finite(values, "values")
    keys = keys if keys is not None else [None] * len(values)
    tokens = tokens if tokens is not None else [1] * len(values)
    check_lengths({"values": values, "keys": keys, "counts of tokens": tokens})
    if tokens and min(tokens) < 0:
        raise ValueError(f"a value has {min(tokens)} tokens, but there cannot be fewer than 0")
    whitened = [0.0] * len(values)
    for indices in members(keys).values():
        counted = [i for i in indices if tokens[i]]
        total = sum(tokens[i] for i in counted)
        if len({values[i] for i in counted}) < 2:
            continue
        mean = math.fsum(tokens[i] * values[i] for i in counted) / total
        variance = math.fsum(tokens[i] * (values[i] - mean) ** 2 for i in counted) / (total - 1)
        spread = math.sqrt(variance + TINY) if guard == "variance" else math.sqrt(variance) + TINY
        for i in counted:
            whitened[i] = (values[i] - mean) / spread
    return whitened
