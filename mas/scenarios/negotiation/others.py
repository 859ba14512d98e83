"""The other side: what it wants at each time, what it offers, and the best that can be had from it.

Its aspiration is the least that it takes. Conceder and boulware lower it with time, after Faratin, Sierra and Jennings,
Negotiation decision functions for autonomous agents, 1998: a(x) = FLOOR + (START - FLOOR) (1 - x^(1/beta)), where x is
the share of the time that is over. Tit for tat lowers it by as much as the team has offered it at best.
"""

from functools import lru_cache
from math import ceil
from typing import Literal

from mas.scenarios.negotiation.deals import DealProblem, Package, packages

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
