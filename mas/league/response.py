"""What an answer to a player got against it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from statistics import fmean

from mas.league.match import PlayedGame
from mas.observe.significance import Interval, mean_interval

ANSWER, TARGET = "answer", "it"
"""Names of the two in their games."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What an answer got against the player that it was trained against.

    Attributes:
        source: the player. games: of both.
        seats: seat of the answer -> mean payoff and its interval.
        mean, interval: over both seats of each deal; in a zero-sum game a lower bound of exploitability.
        is_zero_sum: whether every game was.
    """

    source: str
    games: int
    seats: Mapping[str, tuple[float, Interval]]
    mean: float
    interval: Interval
    is_zero_sum: bool


def response_of(source: str, seats: Sequence[str], games: Sequence[PlayedGame], confidence: float = 0.95) -> Response:
    """What games of an answer say."""
    got: dict[str, list[float]] = {seat: [] for seat in seats}
    deals: dict[int, list[float]] = {}
    for game in games:
        place = game.players.index(ANSWER)
        got[seats[place]].append(game.returns[place])
        deals.setdefault(game.seed, []).append(game.returns[place])
    means = [fmean(own) for own in deals.values()]
    return Response(
        source=source,
        games=len(games),
        seats={seat: (fmean(own), mean_interval(own, confidence)) for seat, own in got.items()},
        mean=fmean(means),
        interval=mean_interval(means, confidence),
        is_zero_sum=all(isclose(sum(game.returns), 0.0, abs_tol=1e-9) for game in games),
    )
