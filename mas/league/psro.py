"""Policy-space response oracles: populations that grow by best answers to each other's meta-strategies.

Source: Lanctot et al. 2017, arXiv 1711.00832, algorithm 1. With exact answers and the meta-solver `nash` it is double
oracle (McMahan et al. 2003), which ends in an equilibrium of the whole game.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Generic, TypeVar

import numpy as np

from mas.core.errors import ConfigError
from mas.league.meta import MetaSolver, Mixes, exploitability, solve
from mas.league.payoff import Matrix, Mix

Player = TypeVar("Player")


@dataclass(frozen=True, slots=True)
class Expected:
    """What both players get in a game, on average, and its variance, where these are known exactly."""

    means: tuple[float, float]
    variances: tuple[float, float]


Play = Callable[[Player, Player], Sequence[tuple[float, float]] | Expected]
"""(first seat's player, second seat's player) -> what both got, of each game that they played, or exactly."""

Respond = Callable[[int, Sequence[Player], Mix], Player]
"""(seat, the other seat's population, how often each of it is met) -> a player of this seat that does well there; one
of its own population if nothing better is found."""


@dataclass(frozen=True, slots=True)
class Iteration(Generic[Player]):
    """The game of populations after an iteration.

    Attributes:
        populations: of both seats, the oldest first.
        means: [n, m] what the first and the second seat get; variances: of single games, ddof 0.
        mixes: the meta-strategies, which the next answers are trained against.
        inside: NashConv of the mixes among these populations, 0 for an equilibrium of theirs.
        gained: what the answers of the next iteration gain together against these mixes, from games; the approximate
            NashConv in the whole game. None in the last iteration, whose answers nobody has trained.
    """

    populations: tuple[tuple[Player, ...], tuple[Player, ...]]
    means: tuple[Matrix, Matrix]
    variances: tuple[Matrix, Matrix]
    mixes: Mixes
    inside: float
    gained: float | None


def psro(
    first: Player,
    second: Player,
    play: Play[Player],
    respond: Respond[Player],
    *,
    solver: MetaSolver = "nash",
    iterations: int = 10,
    risk: float = 0.5,
    enough: float = 1e-9,
) -> Iterator[Iteration[Player]]:
    """Grow both seats' populations until nobody finds a better answer, or for so many iterations.

    Args:
        first, second: who begins.
        play: called once for each pair of players, in the order in which they come.
        risk: of the meta-solver `risk_averse`.
        enough: what answers must gain together for the populations to grow further; minus infinity: always.

    Yields:
        Every iteration; the first has the players that began, the last is the result.

    Raises:
        ConfigError: fewer than one iteration, games that were not played, or a meta-solver that cannot solve this game.
    """
    if iterations < 1:
        raise ConfigError(f"iterations={iterations}: psro needs one at least")
    populations: tuple[list[Player], list[Player]] = ([first], [second])
    table = _PayoffTable(play)
    for number in range(iterations + 1):
        means, variances = table.of(*populations)
        mixes = solve(solver, *means, variances, risk)
        inside = exploitability(*means, mixes)
        now = (tuple(populations[0]), tuple(populations[1]))
        if number == iterations:
            yield Iteration(now, means, variances, mixes, inside, None)
            return
        answers = respond(0, now[1], mixes.second), respond(1, now[0], mixes.first)
        gained = _gained(table, now, means, mixes, answers)
        yield Iteration(now, means, variances, mixes, inside, gained)
        if gained <= enough:
            return
        for population, answer in zip(populations, answers, strict=True):
            if answer not in population:
                population.append(answer)


class _PayoffTable(Generic[Player]):
    """Results by pair of players; each pair plays once."""

    def __init__(self, play: Play[Player]) -> None:
        self._play = play
        self._known: list[tuple[Player, Player, Expected]] = []

    def of(
        self, first: Sequence[Player], second: Sequence[Player]
    ) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
        """Means and variances of both seats, [first, second] each."""
        found = [[self.result(own, other) for other in second] for own in first]
        means = [np.array([[cell.means[seat] for cell in row] for row in found]) for seat in (0, 1)]
        variances = [np.array([[cell.variances[seat] for cell in row] for row in found]) for seat in (0, 1)]
        return (means[0], means[1]), (variances[0], variances[1])

    def result(self, own: Player, other: Player) -> Expected:
        for one, two, known in self._known:
            if one == own and two == other:
                return known
        played = self._play(own, other)
        found = played if isinstance(played, Expected) else expected_of(played)
        if found is None:
            raise ConfigError(f"{own!r} and {other!r} played no game: a payoff needs one at least")
        self._known.append((own, other, found))
        return found


def expected_of(games: Sequence[tuple[float, float]]) -> Expected | None:
    """Means and variances (ddof 0) of what both got; None: of no game."""
    if not games:
        return None
    mine, theirs = ([float(game[seat]) for game in games] for seat in (0, 1))
    return Expected((fmean(mine), fmean(theirs)), (pvariance(mine), pvariance(theirs)))


def _gained(
    table: _PayoffTable[Player],
    populations: tuple[Sequence[Player], Sequence[Player]],
    means: tuple[Matrix, Matrix],
    mixes: Mixes,
    answers: tuple[Player, Player],
) -> float:
    """What both answers get more against the other seat's mix than the own mix does."""
    (against_second, _), _ = table.of([answers[0]], populations[1])
    (_, against_first), _ = table.of(populations[0], [answers[1]])
    usual = [float(mixes.first @ mean @ mixes.second) for mean in means]
    better = float(against_second[0] @ mixes.second), float(against_first[:, 0] @ mixes.first)
    return better[0] - usual[0] + better[1] - usual[1]
