"""What the games of a tournament say: a ladder with intervals, who differs from whom, and what no ladder can say.

The unit of observation is a deal: the games of the same players and the same chance, from every seat, share its luck.
Ratings are those of OpenSkill's Plackett-Luce model (Weng and Lin 2011).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from random import Random
from statistics import fmean
from typing import Literal

import numpy as np
from openskill.models import PlackettLuce, PlackettLuceRating

from mas.league.match import PlayedGame
from mas.league.meta import alpha_rank, is_zero_sum, solve
from mas.league.payoff import Payoff, circles_p, cyclic_share, payoff_matrix
from mas.observe.significance import Difference, Interval, holm, mean_interval, paired, welch, wilson

CYCLIC = 0.5
"""Above this share ratings say less than they hide."""
SURE = 0.01
"""Circles that luck would make more often than this are not told."""
_ORDERS, _UPDATES = 10, 20_000
"""Orders of all games that ratings are means over, and the most games in all of them together."""
Correction = Callable[[Sequence[float]], list[float]]
"""p values of a family of tests -> corrected ones."""
Order = Literal["rating", "payoff"]
"""Of a ladder: ratings know who won, payoffs how much; in poker these differ."""


@dataclass(frozen=True, slots=True)
class Deal:
    """The games of the same players and the same chance: of each player the mean of what it got, and of its points."""

    returns: Mapping[str, float]
    points: Mapping[str, float]


def deals_of(games: Iterable[PlayedGame]) -> list[Deal]:
    """All deals, in the order of their first games."""
    found: dict[tuple[int, tuple[str, ...]], list[PlayedGame]] = {}
    for game in games:
        found.setdefault((game.seed, tuple(sorted(game.players))), []).append(game)
    return [
        Deal(_means(same, [game.returns for game in same]), _means(same, [game.points for game in same]))
        for same in found.values()
    ]


def _means(games: list[PlayedGame], values: list[tuple[float, ...]]) -> dict[str, float]:
    got: dict[str, list[float]] = {}
    for game, paid in zip(games, values, strict=True):
        for name, value in zip(game.players, paid, strict=True):
            got.setdefault(name, []).append(value)
    return {name: fmean(paid) for name, paid in got.items()}


@dataclass(frozen=True, slots=True)
class Rating:
    """Skill is thought to be normal with mean `mu` and deviation `sigma`; everybody begins with 25 and 25/3."""

    mu: float
    sigma: float

    @property
    def ordinal(self) -> float:
        """mu - 3 sigma: what a player is at least, all but surely; the ladder's order."""
        return self.mu - 3 * self.sigma


def rate(players: Sequence[str], played: Iterable[tuple[Sequence[str], Sequence[float]]]) -> dict[str, Rating]:
    """Ratings after all games, whatever their order.

    OpenSkill takes games one after the other, so that the last ones weigh most: among equals whoever won them would
    lead. Players of a tournament do not change meanwhile, so ratings are means over random orders of all games: up to
    `_ORDERS` of them, as many as `_UPDATES` allows.

    A rating is one number for each player: where A beats B, B beats C and C beats A it misleads; see `cyclic_share`
    and `mas.league.meta`.

    Args:
        players: all to be rated, those without a game too; games in which others sat, or one player twice, are
            left out.
        played: of each game the players by seat and what each got; more is better, equal is a draw.
    """
    games = sorted(
        (tuple(seated), tuple(returns))
        for seated, returns in played
        if len(set(seated)) == len(seated) and set(seated) <= set(players)
    )
    random = Random(0)
    orders = max(1, min(_ORDERS, _UPDATES // max(1, len(games))))
    found = [_rated_in_order(players, random.sample(games, len(games))) for _ in range(orders)]
    return {
        name: Rating(fmean(one[name].mu for one in found), fmean(one[name].sigma for one in found)) for name in players
    }


def _rated_in_order(
    players: Sequence[str], games: Iterable[tuple[Sequence[str], Sequence[float]]]
) -> dict[str, PlackettLuceRating]:
    model = PlackettLuce()
    found = {name: model.rating(name=name) for name in players}
    for seated, returns in games:
        # A rank is a place: 0 for the best.
        ranks = [float(sum(other > own for other in returns)) for own in returns]
        rated = model.rate([[found[name]] for name in seated], ranks=ranks)
        found |= {name: rating for (rating,), name in zip(rated, seated, strict=True)}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """One player of the ladder.

    Attributes:
        points: 1 for each game in which nobody had more, shared by those who had the most.
        interval: Wilson's, of points per game; its sample is the deals, as mirrored games share their luck: where they
            share none it is too wide rather than too narrow.
        payoff: mean of what was paid in a game; `paid`: Student's interval of it, over deals.
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
    paid: Interval
    rating: Rating
    nash: float | None
    alpha_rank: float | None
    illegal: int


@dataclass(frozen=True, slots=True)
class PlayerDifference:
    """What one player got more than another; `p`: corrected for all comparisons of the same table."""

    first: str
    second: str
    difference: Difference
    p: float


@dataclass(frozen=True, slots=True)
class Standings:
    """All that is said of a tournament.

    Attributes:
        comparisons: of each two that met, over their own deals: a paired test.
        against_others: of each two, over the deals in which the other one did not sit: Welch's test; empty unless all
            met as often, as those of a Swiss tournament had different opponents.
        cyclic: the share of the payoffs that no rating can tell; None: somebody has not met somebody, or the game has
            more than two seats.
        cyclic_p: how likely such circles are by luck.
        order: of the standings.
    """

    standings: tuple[Standing, ...]
    comparisons: tuple[PlayerDifference, ...]
    against_others: tuple[PlayerDifference, ...]
    payoff: Payoff
    cyclic: float | None
    cyclic_p: float
    confidence: float
    order: Order = "rating"

    @property
    def misleads(self) -> bool:
        """Whether players beat each other in circles, not by luck, and so much that the ladder's order means little."""
        return self.cyclic is not None and self.cyclic > CYCLIC and self.cyclic_p <= SURE


def standings(
    players: Sequence[str],
    games: Sequence[PlayedGame],
    confidence: float = 0.95,
    correction: Correction = holm,
    order: Order = "rating",
) -> Standings:
    """The table of a tournament, the best first.

    Args:
        players: all of them, those without a game too.
        games: in an order that does not depend on when they ended, as a `Store` gives them: ratings depend on it.
        correction: of the tests, `holm` or `bonferroni`.

    Raises:
        ConfigError: a confidence outside of 0 to 1.
    """
    pairs = [(game.players, game.returns) for game in games]
    payoff, ratings = payoff_matrix(players, pairs), rate(players, pairs)
    shares, deals = _shares(payoff), deals_of(games)
    rows = [
        _standing(name, games, deals, ratings[name], shares.get(name, (None, None)), confidence) for name in players
    ]
    rows.sort(key=lambda row: (-(row.payoff if order == "payoff" else row.rating.ordinal), row.name))
    apart = _differences([row.name for row in rows], deals)
    is_whole = not payoff.unplayed and all(len(game.players) == 2 for game in games)
    return Standings(
        tuple(rows),
        _corrected({pair: paired(values, confidence) for pair, values in apart.items()}, correction),
        _corrected(_against_others([row.name for row in rows], deals, payoff, confidence), correction),
        payoff,
        cyclic_share(payoff.mean) if is_whole else None,
        circles_p(apart) if is_whole else 1.0,
        confidence,
        order,
    )


def _standing(
    name: str,
    games: Sequence[PlayedGame],
    deals: Sequence[Deal],
    rating: Rating,
    shares: tuple[float | None, float | None],
    confidence: float,
) -> Standing:
    results, paid, illegal = list[float](), list[float](), 0
    for game in games:
        if name in game.players:
            seat = game.players.index(name)
            results.append(game.points[seat])
            paid.append(game.returns[seat])
            illegal += game.illegal.get(name, 0)
    own = [deal for deal in deals if name in deal.points]
    wins, losses = results.count(1.0), results.count(0.0)
    return Standing(
        name=name,
        games=len(results),
        wins=wins,
        draws=len(results) - wins - losses,
        losses=losses,
        points=sum(results),
        interval=wilson(sum(deal.points[name] for deal in own), len(own), confidence),
        payoff=sum(paid) / len(paid) if paid else 0.0,
        paid=mean_interval([deal.returns[name] for deal in own], confidence),
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
    long_run = alpha_rank(payoff.mean / (float(np.abs(payoff.mean).max()) or 1.0))
    return {
        name: (None if even is None else float(even[place]), float(long_run[place]))
        for place, name in enumerate(payoff.players)
    }


def _differences(names: Sequence[str], deals: Sequence[Deal]) -> dict[tuple[str, str], list[float]]:
    """Of each two that met what the first got more than the second, in each deal in which both sat."""
    found: dict[tuple[str, str], list[float]] = {}
    for pair in combinations(names, 2):
        first, second = pair
        both = [deal.returns for deal in deals if first in deal.returns and second in deal.returns]
        if both:
            found[pair] = [got[first] - got[second] for got in both]
    return found


def _against_others(
    names: Sequence[str], deals: Sequence[Deal], payoff: Payoff, confidence: float
) -> dict[tuple[str, str], Difference]:
    """Of each two, without the deals in which both sat: those are not independent samples."""
    met = {int(payoff.games[i, j]) for i, j in combinations(range(len(names)), 2)}
    if len(met) != 1 or 0 in met:
        return {}
    found = {}
    for first, second in combinations(names, 2):
        samples = [
            [deal.returns[own] for deal in deals if own in deal.returns and other not in deal.returns]
            for own, other in ((first, second), (second, first))
        ]
        if min(map(len, samples)) > 1:
            found[first, second] = welch(samples[0], samples[1], confidence)
    return found


def _corrected(found: Mapping[tuple[str, str], Difference], correction: Correction) -> tuple[PlayerDifference, ...]:
    corrected = correction([difference.p for difference in found.values()])
    return tuple(
        PlayerDifference(first, second, difference, p)
        for ((first, second), difference), p in zip(found.items(), corrected, strict=True)
    )
