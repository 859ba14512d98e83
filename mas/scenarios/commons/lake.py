"""The fish of `commons`: how a stock regrows, what neighbours take, and the best play, by dynamic programming.

In a season the team's boats go out first, then the neighbours'. The R fish that are left spawn: R + min(R, g) are there
next season, at most as many as the lake holds; below `floor` they die out.
"""

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import Literal

import msgspec

Neighbour = Literal["none", "cooperator", "greedy", "conditional"]
NEIGHBOURS: tuple[Neighbour, ...] = ("none", "cooperator", "greedy", "conditional")


class LakeRules(msgspec.Struct, frozen=True, kw_only=True):
    """What all tasks share.

    Attributes:
        harvesters: the team's boats, in the order in which scarce fish are shared out. limit: what one can take.
        capacity: what the lake holds. floor: fewer fish than that die out. rounds: seasons.
        kinds: neighbours that a task draws from. crowd: how many of them there are.
    """

    harvesters: tuple[str, ...]
    capacity: int
    floor: int
    limit: int
    rounds: int
    kinds: tuple[Neighbour, ...] = NEIGHBOURS
    crowd: int = 1

    @property
    def most(self) -> int:
        """What the team can take in a season."""
        return self.limit * len(self.harvesters)


class Lake(msgspec.Struct, frozen=True):
    """A task: the first stock, `growth` (at most so many fish are born after each season but the last), and who else
    fishes there."""

    stock: int
    growth: tuple[int, ...]
    kind: Neighbour


class CatchPlan(msgspec.Struct, frozen=True):
    """`values[t][s]`: the most that the team can still take with s fish at the start of season t; after the last
    season 0. `best[t][s]`: the totals that reach it, in rising order."""

    values: tuple[tuple[int, ...], ...]
    best: tuple[tuple[tuple[int, ...], ...], ...]


def make(random: Random, rules: LakeRules) -> Lake:
    """A lake at least half full, and growth between 1 and half of what it holds."""
    stock = random.randint((rules.capacity + 1) // 2, rules.capacity)
    growth = tuple(random.randint(1, rules.capacity // 2) for _ in range(rules.rounds - 1))
    return Lake(stock, growth, random.choice(rules.kinds))


def neighbours_take(rules: LakeRules, kind: Neighbour, rest: int, growth: int, taken: int) -> int:
    """What all neighbours take of the rest that the team left, having taken so many.

    A cooperator takes a quarter of its limit, and only of what exceeds the growth, so that as many as can be born are
    born; a greedy one takes half of its limit; a conditional one as many as a member of the team took on average,
    rounded up.
    """
    if kind == "none":
        return 0
    if kind == "cooperator":
        rest, each = max(0, rest - growth), max(1, rules.limit // 4)
    elif kind == "greedy":
        each = max(1, rules.limit // 2)
    else:
        each = -(-taken // len(rules.harvesters))
    return min(rest, rules.crowd * each)


def regrown(rules: LakeRules, left: int, growth: int) -> int:
    """Next season's stock."""
    return 0 if left < rules.floor else min(rules.capacity, left + min(left, growth))


def after(rules: LakeRules, lake: Lake, season: int, stock: int, taken: int) -> int:
    """The stock at the start of the next season, the team having taken so many fish in this one. Nothing is born
    after the last."""
    growth = lake.growth[season] if season < len(lake.growth) else 0
    rest = stock - taken
    return regrown(rules, rest - neighbours_take(rules, lake.kind, rest, growth, taken), growth)


def landed(demands: Sequence[int], stock: int) -> tuple[int, ...]:
    """What each boat gets: what it asked for, or where that is too much a fish in turn while there are any."""
    got = [0] * len(demands)
    while stock and got != list(demands):
        for place, demand in enumerate(demands):
            if stock and got[place] < demand:
                got[place] += 1
                stock -= 1
    return tuple(got)


def plan(rules: LakeRules, lake: Lake) -> CatchPlan:
    """Every stock at every season, from the last season back; the first stock does not matter."""
    return _plan(rules, msgspec.structs.replace(lake, stock=0))


@lru_cache(maxsize=4096)
def _plan(rules: LakeRules, lake: Lake) -> CatchPlan:
    values: list[tuple[int, ...]] = [(0,) * (rules.capacity + 1)]
    best: list[tuple[tuple[int, ...], ...]] = []
    for season in reversed(range(rules.rounds)):
        worth = [
            [total + values[0][after(rules, lake, season, stock, total)] for total in range(min(stock, rules.most) + 1)]
            for stock in range(rules.capacity + 1)
        ]
        values.insert(0, tuple(max(row) for row in worth))
        best.insert(0, tuple(tuple(t for t, value in enumerate(row) if value == max(row)) for row in worth))
    return CatchPlan(tuple(values), tuple(best))


def even(total: int, boats: int) -> tuple[int, ...]:
    """A total split as evenly as can be, the first boats taking what is over."""
    return tuple(total // boats + (place < total % boats) for place in range(boats))
