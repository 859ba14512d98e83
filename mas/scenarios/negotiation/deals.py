"""What is negotiated: things of several kinds, and what each package of them is worth to either side.

A package says how many of each kind the team gets; the other side gets the rest.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from random import Random
from typing import Literal

import msgspec

Package = tuple[int, ...]
Style = Literal["letters", "words"]

TOTAL = 10
"""What all things together are worth, to either side."""
NAMES = ("book", "hat", "ball", "lamp", "clock")
_MOST = 3
"""Things of one kind at most, in words; in letters there is one of each."""


class DealProblem(msgspec.Struct, frozen=True):
    """`counts`: how many there are of each kind. `mine`, `theirs`: what one of each kind is worth to either side."""

    counts: tuple[int, ...]
    mine: tuple[int, ...]
    theirs: tuple[int, ...]

    def for_team(self, package: Package) -> int:
        """What a package is worth to the team."""
        return sum(value * number for value, number in zip(self.mine, package, strict=True))

    def for_other(self, package: Package) -> int:
        """What the rest is worth to the other side."""
        return TOTAL - sum(value * number for value, number in zip(self.theirs, package, strict=True))


def make_problem(random: Random, style: Style, kinds: int) -> DealProblem:
    """Counts, then values of each side among all that add up to `TOTAL`."""
    counts = tuple(random.randint(1, _MOST) if style == "words" else 1 for _ in range(kinds))
    if sum(counts) == 1 or 1 not in counts:
        counts = (1, *counts[1:])
    return DealProblem(counts, random.choice(_values(counts)), random.choice(_values(counts)))


@lru_cache(maxsize=256)
def packages(counts: tuple[int, ...]) -> tuple[Package, ...]:
    """All of them, from everything to nothing."""
    return tuple(product(*(range(count, -1, -1) for count in counts)))


@lru_cache(maxsize=4096)
def ladder(problem: DealProblem) -> tuple[Package, ...]:
    """All packages, from the one that the team likes best to nothing; of equal ones the larger first."""
    return tuple(sorted(packages(problem.counts), key=lambda package: (-problem.for_team(package), -sum(package))))


@lru_cache(maxsize=4096)
def efficiency(problem: DealProblem, package: Package) -> float:
    """1 on the Pareto frontier, less elsewhere.

    (u + v) / max (u' + v') over the packages that leave neither side worse off, where u and v are what the package is
    worth to the two.
    """
    mine, theirs = problem.for_team(package), problem.for_other(package)
    if mine + theirs == 0:
        return 0.0
    better = (
        problem.for_team(other) + problem.for_other(other)
        for other in packages(problem.counts)
        if problem.for_team(other) >= mine and problem.for_other(other) >= theirs
    )
    return (mine + theirs) / max(better)


@lru_cache(maxsize=4096)
def nash_share(problem: DealProblem, package: Package) -> float:
    """The product of what a package is worth to the two sides, over the largest there is (Nash, 1950)."""
    most = max(problem.for_team(other) * problem.for_other(other) for other in packages(problem.counts))
    return problem.for_team(package) * problem.for_other(package) / most


@lru_cache(maxsize=256)
def _values(counts: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """All values of the kinds that add up to `TOTAL`, and not in one kind alone."""
    return tuple(found for found in _splits(counts, TOTAL) if sum(value > 0 for value in found) > 1)


def _splits(counts: tuple[int, ...], total: int) -> Iterator[tuple[int, ...]]:
    if not counts:
        yield from [()] if total == 0 else []
        return
    for value in range(total // counts[0] + 1):
        for rest in _splits(counts[1:], total - value * counts[0]):
            yield (value, *rest)
