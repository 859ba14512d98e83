"""Whole numbers in given proportions."""

from collections.abc import Mapping
from fractions import Fraction


def due(shares: Mapping[str, Fraction], given: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of the next `count` each name gets, by the largest remainder, if so many were given before.

    What a name was given less than its share of all, or more, is made up for. Of equal remainders the first name's
    wins. So beginning at nothing every name has its share rounded up or down, and never is one forgotten for long.

    Args:
        shares: name -> its share; they add up to 1.
    """
    total = sum(given.values()) + count
    owed = {name: share * total - given[name] for name, share in shares.items()}
    got = dict.fromkeys(shares, 0)
    for _ in range(count):
        name = max(owed, key=lambda one: owed[one])
        owed[name] -= 1
        got[name] += 1
    return got


def proportions(weights: Mapping[str, float]) -> dict[str, Fraction]:
    """Shares that add up to exactly 1; a weight of 0.1 is a tenth, not the nearest binary fraction."""
    exact = {name: Fraction(repr(weight)) for name, weight in weights.items()}
    return {name: weight / sum(exact.values()) for name, weight in exact.items()}
