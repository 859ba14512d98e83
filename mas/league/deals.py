"""What was got in each deal: the unit of observation, as the games of one deal, from every seat, share its luck."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from mas.league.records import PlayedGame


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
