"""What all comparisons share: groups of equal keys, their spread, and the check that lists belong together."""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence, Sized
from statistics import fmean

from mas.core.environment import LARGEST, is_bounded

EPS = 1e-6
"""Is added to a standard deviation before anything is divided by it."""
MOST = LARGEST**3
"""The largest absolute value that can be compared: advantages may be larger than rewards, and squares stay finite."""


def members(keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Key -> indices that have it, both in order of appearance."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        found[key].append(index)
    return dict(found)


def std(values: Sequence[float], *, ddof: int = 1) -> float:
    """Standard deviation, the sample's by default. Exactly 0 for equal values; 0 for a single one.

    Raises:
        ValueError: a value is NaN, infinite or larger than 1e90 in absolute value.
    """
    check_finite(values, "values")
    if len(values) <= ddof or min(values) == max(values):
        return 0.0
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def standardised(values: Sequence[float], *, ddof: int = 1) -> list[float]:
    """z = (x - mean) / (std + 1e-6). Exactly 0 for equal values and for a single one."""
    spread = std(values, ddof=ddof)
    if not spread:
        return [0.0] * len(values)
    mean = fmean(values)
    return [(value - mean) / (spread + EPS) for value in values]


def check_finite(values: Sequence[float], what: str = "rewards") -> None:
    """Refuse values that compare with nothing: with a NaN among them minima and orders depend on its place.

    Raises:
        ValueError: with the first one that is NaN, infinite or larger than 1e90 in absolute value, and its place.
    """
    for place, value in enumerate(values):
        if not is_bounded(value, MOST):
            raise ValueError(
                f"number {place} of {len(values)} {what} is {value}: only finite numbers can be compared, between "
                f"{-MOST:g} and {MOST:g}"
            )


def check_lengths(lists: Mapping[str, Sized]) -> None:
    """Refuse lists of different lengths. `lists`: plural name -> list; all are compared with the first.

    Raises:
        ValueError: with the names and lengths of the first two that differ.
    """
    first, *others = lists
    for other in others:
        if len(lists[first]) != len(lists[other]):
            raise ValueError(
                f"{len(lists[first])} {first} but {len(lists[other])} {other}: give as many of the one as of the other"
            )
