"""Policy-space response oracles: populations that grow by best answers to each other's meta-strategies.

Source: Lanctot et al. 2017, arXiv 1711.00832, algorithm 1. With exact answers and the meta-solver `nash` it is double
oracle (McMahan et al. 2003), which ends in an equilibrium of the whole game.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance
from typing import Generic, TypeVar

import numpy as np

from mas.core.errors import ConfigError
from mas.league.maximin import Mix
from mas.league.meta import MetaSolver, Mixes, exploitability, solve
from mas.league.payoff import Matrix

Player = TypeVar("Player")

Play = Callable[[Player, Player], Sequence[tuple[float, float]]]
"""(first seat's player, second seat's player) -> what both got, of each game that they played."""

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
) -> list[Iteration[Player]]:
    """Grow both seats' populations until nobody finds a better answer, or for so many iterations.

    Args:
        first, second: who begins.
        play: called once for each pair of players, in the order in which they come.
        risk: of the meta-solver `risk_averse`.
        enough: what answers must gain together for the populations to grow further.

    Returns:
        Every iteration; the first has the players that began, the last is the result.

    Raises:
        ConfigError: fewer than one iteration, games that were not played, or a meta-solver that cannot solve this game.
    """
    if iterations < 1:
        raise ConfigError(f"iterations={iterations}: psro needs one at least")
    populations: tuple[list[Player], list[Player]] = ([first], [second])
    table = _Table(play)
    found: list[Iteration[Player]] = []
    while True:
        means, variances = table.of(*populations)
        mixes = solve(solver, *means, variances, risk)
        inside = exploitability(*means, mixes)
        now = (tuple(populations[0]), tuple(populations[1]))
        if len(found) == iterations:
            return [*found, Iteration(now, means, variances, mixes, inside, None)]
        answers = respond(0, now[1], mixes.second), respond(1, now[0], mixes.first)
        gained = _gained(table, now, means, mixes, answers)
        found.append(Iteration(now, means, variances, mixes, inside, gained))
        if gained <= enough:
            return found
        for population, answer in zip(populations, answers, strict=True):
            if answer not in population:
                population.append(answer)


class _Table(Generic[Player]):
    """Results by pair of players; each pair plays once."""

    def __init__(self, play: Play[Player]) -> None:
        self._play = play
        self._known: list[tuple[Player, Player, list[tuple[float, float]]]] = []

    def of(
        self, first: Sequence[Player], second: Sequence[Player]
    ) -> tuple[tuple[Matrix, Matrix], tuple[Matrix, Matrix]]:
        """Means and variances of both seats, [first, second] each."""
        games = [[self.games(own, other) for other in second] for own in first]
        means, variances = (
            tuple(np.array([[told([game[seat] for game in cell]) for cell in row] for row in games]) for seat in (0, 1))
            for told in (fmean, pvariance)
        )
        return (means[0], means[1]), (variances[0], variances[1])

    def games(self, own: Player, other: Player) -> list[tuple[float, float]]:
        for one, two, games in self._known:
            if one == own and two == other:
                return games
        games = [(float(mine), float(theirs)) for mine, theirs in self._play(own, other)]
        if not games:
            raise ConfigError(f"{own!r} and {other!r} played no game: a payoff needs one at least")
        self._known.append((own, other, games))
        return games


def _gained(
    table: _Table[Player],
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
