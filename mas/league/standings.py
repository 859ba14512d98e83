"""What the games of a tournament say: a ladder with intervals, who differs from whom, and what no ladder can say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from mas.league.meta import is_zero_sum, solve
from mas.league.payoff import Payoff, cyclic_share, payoff_matrix
from mas.league.ratings import Rating, rate
from mas.league.records import Game
from mas.league.statistics import Difference, Interval, holm, welch, wilson

CYCLIC = 0.5
"""Above this share ratings say less than they hide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One player of the ladder.

    Attributes:
        points: 1 for each game in which nobody had more, shared by those who had the most.
        interval: Wilson's, of points per game.
        payoff: mean of what was paid in a game.
        nash: share of the most even equilibrium of the payoff matrix; None: the game is not zero-sum, or somebody has
            not met somebody.
        alpha_rank: share of alpha-rank's long run; None: somebody has not met somebody.
        illegal: moves that were not legal, in all games.
    """

    name: str
    games: int
    wins: int
    draws: int
    losses: int
    points: float
    interval: Interval
    payoff: float
    rating: Rating
    nash: float | None
    alpha_rank: float | None
    illegal: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two players' payoffs against everybody else; `p`: corrected for all comparisons by Holm's procedure."""

    first: str
    second: str
    difference: Difference
    p: float


@dataclass(frozen=True, slots=True)
class Table:
    """All that is said of a tournament; `cyclic`: the share of the payoffs that no rating can tell."""

    standings: tuple[Standing, ...]
    comparisons: tuple[Comparison, ...]
    payoff: Payoff
    cyclic: float
    confidence: float

    @property
    def misleads(self) -> bool:
        """Whether players beat each other in circles so much that the ladder's order means little."""
        return self.cyclic > CYCLIC


def standings(players: Sequence[str], games: Sequence[Game], confidence: float = 0.95) -> Table:
    """The table of a tournament, best rating first.

    Args:
        players: all of them, those without a game too.
        games: in an order that does not depend on when they ended, as a `Store` gives them: ratings depend on it.

    Raises:
        ConfigError: a confidence outside of 0 to 1.
    """
    pairs = [(game.players, game.returns) for game in games]
    payoff, ratings = payoff_matrix(players, pairs), rate(players, pairs)
    shares = _shares(payoff)
    rows = [_standing(name, games, ratings[name], shares.get(name, (None, None)), confidence) for name in players]
    rows.sort(key=lambda row: (-row.rating.ordinal, row.name))
    return Table(
        tuple(rows),
        _comparisons([row.name for row in rows], games, confidence),
        payoff,
        cyclic_share(payoff.mean),
        confidence,
    )


def _standing(
    name: str,
    games: Sequence[Game],
    rating: Rating,
    shares: tuple[float | None, float | None],
    confidence: float,
) -> Standing:
    results, paid, illegal = list[float](), list[float](), 0
    for game in games:
        if name in game.players:
            got = game.returns[game.players.index(name)]
            best, among = max(game.returns), game.returns.count(max(game.returns))
            results.append(1 / among if got == best else 0.0)
            paid.append(got)
            illegal += game.illegal.get(name, 0)
    wins, losses = results.count(1.0), results.count(0.0)
    return Standing(
        name=name,
        games=len(results),
        wins=wins,
        draws=len(results) - wins - losses,
        losses=losses,
        points=sum(results),
        interval=wilson(sum(results), len(results), confidence),
        payoff=sum(paid) / len(paid) if paid else 0.0,
        rating=rating,
        nash=shares[0],
        alpha_rank=shares[1],
        illegal=illegal,
    )


def _shares(payoff: Payoff) -> Mapping[str, tuple[float | None, float | None]]:
    """Name -> share of Nash averaging and of alpha-rank."""
    if len(payoff.players) < 2 or payoff.unplayed:
        return {}
    even = solve("nash", payoff.mean, payoff.mean.T).first if is_zero_sum(payoff.mean, payoff.mean.T) else None
    long_run = solve("alpha_rank", payoff.mean, payoff.mean.T).first
    return {
        name: (None if even is None else float(even[place]), float(long_run[place]))
        for place, name in enumerate(payoff.players)
    }


def _comparisons(names: Sequence[str], games: Sequence[Game], confidence: float) -> tuple[Comparison, ...]:
    """Of each two players, without the games in which both sat: those are not independent samples."""
    found = []
    for first, second in combinations(names, 2):
        samples = [
            [
                game.returns[game.players.index(own)]
                for game in games
                if own in game.players and other not in game.players
            ]
            for own, other in ((first, second), (second, first))
        ]
        if min(map(len, samples)) > 1:
            found.append((first, second, welch(samples[0], samples[1], confidence)))
    corrected = holm([difference.p for _, _, difference in found])
    return tuple(
        Comparison(first, second, difference, p)
        for (first, second, difference), p in zip(found, corrected, strict=True)
    )
