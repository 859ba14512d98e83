"""Normalising over a whole batch, of all agents or of each by itself.

Also comparisons of each reward term, or of each structure of trajectory, by itself.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

from mas.algorithms.parts.advantages.group import Scale, check_finite, check_lengths, group_advantages, members
from mas.core.options import Options, Share

TINY = 1e-8


def whiten(
    values: Sequence[float],
    keys: Sequence[Hashable] | None = None,
    *,
    tokens: Sequence[int] | None = None,
) -> list[float]:
    """(x - mean) / spread over all values that have the same key; exactly 0 where they are all equal or one alone.

    The spread is sqrt(var + 1e-8) with ddof 1.
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
        spread = math.sqrt(variance + TINY)
        for i in counted:
            whitened[i] = (values[i] - mean) / spread
    return whitened


def component_advantages(
    components: Mapping[str, Sequence[float]],
    keys: Sequence[Hashable],
    weights: Mapping[str, float],
    *,
    buffers: Sequence[Hashable] | None = None,
) -> list[float]:
    """z of each term in its group, their weighted sum, then `whiten` over the batch.

    Source: GDPO, arXiv 2601.05242.

    Args:
        components: name -> N scalars. keys: N group keys.
        weights: name -> weight; a term without one counts once.
        buffers: what is whitened together, e.g. agents; None: the whole batch.

    Raises:
        ValueError: no component, lengths differ, or a weight names no component.
    """
    unknown = sorted(set(weights) - set(components))
    if unknown or not components:
        raise ValueError(f"weights are given for {unknown}, but the reward's components are {sorted(components)}")
    check_lengths({"group keys": keys} | {f"rewards of {name}": values for name, values in components.items()})
    terms = [
        [weights.get(name, 1.0) * advantage for advantage in group_advantages(values, keys)]
        for name, values in components.items()
    ]
    return whiten([math.fsum(row) for row in zip(*terms, strict=True)], buffers)


class StrataOptions(Options):
    """Trajectories are compared with those of episodes with as many tool `calls`, or those of as many `turns`, or
    `failures` to parse, by the share `blend`, and with the whole group by the rest."""

    by: Literal["calls", "turns", "failures"] = "turns"
    blend: Share = 0.8


def stratified_advantages(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    strata: Sequence[Hashable],
    *,
    alpha: float = 1.0,
    scale: Scale = "std",
) -> list[float]:
    """A = alpha x (compared in group and stratum) + (1 - alpha) x (compared in the whole group).

    Without scale, reward - mean of group = (reward - mean of stratum) + (mean of stratum - mean of group): the last is
    the bias between strata that the first term leaves out. A stratum of one has only the group's share.
    Source: Stratified GRPO, arXiv 2510.06214 (stratum: e.g. the number of search calls).

    Args:
        rewards: of N trajectories. keys: their groups. strata: what each is like, e.g. its number of tool calls.
        alpha: 0 (no strata) to 1 (no comparison between them).

    Raises:
        ValueError: lengths differ, or alpha is outside [0, 1].
    """
    check_lengths({"rewards": rewards, "group keys": keys, "strata": strata})
    inside = group_advantages(rewards, list(zip(keys, strata, strict=True)), scale=scale)
    return blend(inside, group_advantages(rewards, keys, scale=scale), alpha)


def blend(first: Sequence[float], second: Sequence[float], alpha: float) -> list[float]:
    """alpha x first + (1 - alpha) x second.

    Raises:
        ValueError: lengths differ, or alpha is outside [0, 1].
    """
    check_lengths({"first advantages": first, "second advantages": second})
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    return [alpha * one + (1 - alpha) * other for one, other in zip(first, second, strict=True)]
