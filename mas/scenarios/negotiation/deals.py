"""What is negotiated: things of several kinds, and what each package of them is worth to either side.

A package says how many of each kind the team gets; the other side gets the rest.

Packages as one character, for the tiny base, and in words, for real models. As a character: the number whose binary
digits say which things the team gets, so that 7 is all three and 0 nothing.

The other side: what it wants at each time, what it offers, and the best that can be had from it. Its aspiration is the
least that it takes. Conceder and boulware lower it with time, after Faratin, Sierra and Jennings, Negotiation decision
functions for autonomous agents, 1998: a(x) = FLOOR + (START - FLOOR) (1 - x^(1/beta)), where x is the share of the time
that is over. Tit for tat lowers it by as much as the team has offered it at best.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import ceil
from random import Random
from typing import Literal

import msgspec

from mas.scenarios.world import Style

Package = tuple[int, ...]

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


ACCEPT = {"letters": "y", "words": "ACCEPT"}
_OFFER = re.compile(r"OFFER(?::| )\s*(.{1,200})")
_PART = re.compile(r"([0-9]{1,2}) ([a-z]{1,20}?)s?")


def code(package: Package) -> str:
    """The character of a package in which there is one thing of each kind."""
    return str(int("".join(map(str, package)), 2))


def decode(text: str, kinds: int) -> Package | None:
    """The package that a character means, None for another text."""
    if len(text) != 1 or not "0" <= text < str(2**kinds):
        return None
    return tuple(map(int, f"{int(text):0{kinds}b}"))


def phrase(package: Package) -> str:
    """A package as `1 book, 2 hats`."""
    parts = [f"{number} {name}{'s' * (number > 1)}" for number, name in zip(package, NAMES, strict=False) if number]
    return ", ".join(parts) or "nothing"


def spell(style: Style, package: Package) -> str:
    """The action that asks for a package."""
    return code(package) if style == "letters" else f"OFFER {phrase(package)}"


def read_offer(text: str, counts: tuple[int, ...]) -> Package | None:
    """The package of `OFFER 1 book, 2 hats`, what is not named being 0; None: it is none, or there is not so much."""
    match = _OFFER.fullmatch(text)
    if match is None:
        return None
    names, said = NAMES[: len(counts)], match[1].strip().rstrip(".")
    found: dict[str, int] = {}
    for part in [] if said == "nothing" else re.split(r", and |, | and ", said):
        read = _PART.fullmatch(part)
        if read is None or read[2] not in names or read[2] in found:
            return None
        found[read[2]] = int(read[1])
    package = tuple(found.get(name, 0) for name in names)
    return package if all(number <= most for number, most in zip(package, counts, strict=True)) else None


def prices(values: tuple[int, ...]) -> str:
    """What one thing of each kind is worth: `a book 3, a hat 0`."""
    return ", ".join(f"a {name} {value}" for name, value in zip(NAMES, values, strict=False))


Script = Literal["conceder", "boulware", "tit_for_tat"]

SCRIPTS: tuple[Script, ...] = ("conceder", "boulware", "tit_for_tat")
START, FLOOR = 9, 3
_BETA = {"conceder": 3.0, "boulware": 1 / 3}


def aspiration(script: Script, turn: int, turns: int, given: int) -> int:
    """The least that it takes once the team has had `turn` of `turns` turns and offered it `given` at best."""
    if script == "tit_for_tat":
        return max(FLOOR, START - given)
    left: float = 1 - (turn / turns) ** (1 / _BETA[script])
    # Rounded first: in floating point 3 + 6 x 0 may be a little more than 3.
    return ceil(round(FLOOR + (START - FLOOR) * left, 6))


@lru_cache(maxsize=65536)
def offer(problem: DealProblem, least: int) -> Package:
    """What it offers the team: of all that leave it what it wants the one that costs it most, then the largest."""
    enough = (package for package in packages(problem.counts) if problem.for_other(package) >= least)
    return min(enough, key=lambda package: (problem.for_other(package), -sum(package)))


@lru_cache(maxsize=65536)
def best_reply(
    problem: DealProblem, script: Script, turn: int, turns: int, given: int, standing: Package
) -> tuple[int, Package | None]:
    """The most that the team can still get, and how: the package to ask for, None to accept what stands.

    Searches all courses of the negotiation; packages that are worth the same to the other side have the same effect on
    it, so that only the best of them is tried. Of equal courses the one that accepts now is taken, then the one that
    asks for no more than it will get.
    """
    best: tuple[int, Package | None] = (problem.for_team(standing), None)
    regret = 0
    for worth, package in _candidates(problem):
        after = max(given, worth)
        least = aspiration(script, turn + 1, turns, after)
        asked = reached = problem.for_team(package)
        if worth < least:
            if turn + 1 == turns:
                continue
            reached = best_reply(problem, script, turn + 1, turns, after, offer(problem, least))[0]
        if (reached, -abs(asked - reached)) > (best[0], -regret):
            best, regret = (reached, package), abs(asked - reached)
    return best


@lru_cache(maxsize=4096)
def _candidates(problem: DealProblem) -> tuple[tuple[int, Package], ...]:
    """The package that the team likes best for each worth to the other side, dearest to the team first."""
    best: dict[int, Package] = {}
    for package in packages(problem.counts):
        worth = problem.for_other(package)
        if worth not in best or problem.for_team(package) > problem.for_team(best[worth]):
            best[worth] = package
    return tuple(sorted(best.items(), key=lambda pair: (-problem.for_team(pair[1]), pair[0])))


def most(problem: DealProblem, script: Script, turns: int) -> int:
    """The most that the team can get in the whole negotiation."""
    opening = offer(problem, aspiration(script, 0, turns, 0))
    return best_reply(problem, script, 0, turns, 0, opening)[0]
