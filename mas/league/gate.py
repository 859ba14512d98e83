"""Who may enter a league's pool: how sure one may be that a candidate is good enough. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.league.records import LeagueMember, PlayedGame
from mas.league.tournament import points_of
from mas.observe.significance import Interval, mean_interval, wilson

Measure = Literal["points", "payoff"]
EVEN: Mapping[Measure, float] = {"points": 0.5, "payoff": 0.0}
"""What equally good players have in a zero-sum game."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVerdict:
    """What a gate measured.

    Attributes:
        measure: `points` per game (Wilson's interval), or `payoff` per game (Student's).
        mean, interval: of all games.
        against: opponent -> points per game.
        threshold: what the interval must lie above.
        is_best: whether the candidate is surely better than the best member was.
    """

    measure: Measure
    games: int
    mean: float
    interval: Interval
    against: Mapping[str, float]
    threshold: float
    is_best: bool

    @property
    def passes(self) -> bool:
        """Whether it is let in: nobody was there to play against, or the whole interval lies above the threshold."""
        return not self.games or self.interval.low > self.threshold

    def notes(self) -> dict[str, float]:
        """For `Member.notes`."""
        if not self.games:
            return {"best": 1.0}
        found = {"games": float(self.games), self.measure: self.mean, "low": self.interval.low}
        found |= {"high": self.interval.high, "threshold": self.threshold, "best": float(self.is_best)}
        return found | {_against(name): points for name, points in self.against.items()}


def judge(
    candidate: str,
    games: Sequence[PlayedGame],
    *,
    best: str | None,
    measure: Measure = "points",
    threshold: float | None = None,
    confidence: float = 0.95,
) -> GateVerdict:
    """What a candidate's games say: the lower bound of what it gets per game must exceed the threshold.

    A gate on a confidence bound instead of the rate itself, so that luck of few games lets nobody in.

    Args:
        games: of the candidate, one opponent each; none: it is the first of all.
        best: the best member; None: there is none, and the candidate is.
        measure: points say who wins more often, payoffs who wins more: in poker these differ.
        threshold: None: what equals have, 0.5 points or a payoff of 0.

    Raises:
        ConfigError: a confidence outside of 0 to 1.
    """
    threshold = EVEN[measure] if threshold is None else threshold
    everybody = _values(candidate, games, measure)
    by_opponent: dict[str, list[PlayedGame]] = {}
    for game in games:
        (opponent,) = (name for name in game.players if name != candidate)
        by_opponent.setdefault(opponent, []).append(game)
    leading = _values(candidate, by_opponent.get(best or "", []), measure)
    is_best = best is None or (len(leading) > 1 and _interval(leading, measure, confidence).low > EVEN[measure])
    return GateVerdict(
        measure=measure,
        games=len(games),
        mean=fmean(everybody or [0.0]),
        interval=_interval(everybody, measure, confidence) if everybody else Interval(0.0, 0.0),
        against={name: fmean(_values(candidate, own, "points")) for name, own in by_opponent.items()},
        threshold=threshold,
        is_best=is_best,
    )


def best_of(members: Sequence[LeagueMember]) -> str | None:
    """The last member that was surely better than the best one before it; the first one, if nobody was. None: there
    are no members."""
    return next((one.name for one in reversed(members) if one.notes.get("best")), members[0].name if members else None)


def ancestors(members: Sequence[LeagueMember], name: str) -> list[LeagueMember]:
    """All members that one descends from, its parent first.

    Raises:
        ConfigError: no such member.
    """
    known = {one.name: one for one in members}
    if name not in known:
        raise ConfigError(f"no member {name!r} in this league. {did_you_mean(name, known)}")
    found, parent = list[LeagueMember](), known[name].parent
    while parent is not None:
        found.append(known[parent])
        parent = known[parent].parent
    return found


def points_at_gate(member: LeagueMember, opponent: str) -> float | None:
    """Points per game that a member had against another one when it came; None: they did not play."""
    return member.notes.get(_against(opponent))


def _against(opponent: str) -> str:
    return f"against {opponent}"


def _values(player: str, games: Sequence[PlayedGame], measure: Measure) -> list[float]:
    if measure == "points":
        return [points_of(game.players, [game])[player] for game in games]
    return [game.returns[game.players.index(player)] for game in games]


def _interval(values: Sequence[float], measure: Measure, confidence: float) -> Interval:
    if measure == "points":
        return wilson(sum(values), len(values), confidence)
    return mean_interval(values, confidence)
