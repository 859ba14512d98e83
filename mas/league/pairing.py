"""Who plays whom: round robins, Swiss rounds and one against all, with seats and seeds balanced."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import networkx as nx

from mas.core.errors import ConfigError
from mas.core.naming import derive_seed


@dataclass(frozen=True, slots=True)
class Fixture:
    """One game to play: a player for each seat, in the game's order of seats, and the seed of its chance.

    Attributes:
        round: from 0.
        number: of the game among those of the same players, from 0.
    """

    players: tuple[str, ...]
    seed: int
    round: int
    number: int

    @property
    def id(self) -> str:
        """The same for the same game of the same tournament, and for no other."""
        return f"{self.round}/{self.number}/{'/'.join(self.players)}"


def round_robin(players: Sequence[str], *, seats: int, games: int, seed: int) -> list[Fixture]:
    """Every `seats` players play each other `games` times: each deal from every seat, so that luck is shared.

    Round r holds the r-th game of all of them. In whichever order players are named, fixtures are the same.

    Args:
        games: a multiple of `seats`.

    Raises:
        ConfigError: too few players, two of one name, or games that leave seats unbalanced.
    """
    check_players(players, seats)
    check_games(games, seats)
    return [
        Fixture(_turned(among, number), derive_seed(seed, *sorted(among), number // seats), number, number)
        for number in range(games)
        for among in combinations(sorted(players), seats)
    ]


def gauntlet(challenger: str, others: Sequence[str], *, games: int, seed: int) -> list[Fixture]:
    """One player meets each of the others `games` times, each deal from both seats; the others do not meet.

    Args:
        games: an even number.

    Raises:
        ConfigError: nobody to meet, two of one name, or an odd number of games.
    """
    check_players((challenger, *others), 2)
    check_games(games, 2)
    return [
        Fixture(
            _turned((challenger, other), number),
            derive_seed(seed, *sorted((challenger, other)), number // 2),
            number,
            number,
        )
        for number in range(games)
        for other in others
    ]


def swiss_round(
    points: Mapping[str, float], played: Sequence[Fixture], *, games: int, seed: int, number: int
) -> list[Fixture]:
    """Round `number` of a Swiss tournament: neighbours in points meet, nobody twice while it can be helped.

    With an odd number the player with the fewest points who has not sat out yet does, and is paired from then on as if
    it had won those games (a full-point bye); everybody else plays `games` games, half of them from each seat.

    Args:
        points: of each player's games so far; ties are in the order of names.
        played: all games of the rounds before.
        games: of each pair, an even number.

    Raises:
        ConfigError: too few players, or an odd number of games.
    """
    past = _rounds(points, played)
    with_byes = {name: points[name] + games * (max(past.values()) - past[name]) for name in past}
    players = sorted(points, key=lambda name: (-with_byes[name], name))
    check_players(players, 2)
    check_games(games, 2)
    met = Counter(frozenset(fixture.players) for fixture in played)
    if len(players) % 2:
        # The last one of those who played in the most rounds: who sat out before plays.
        most = max(past.values())
        players.remove([name for name in players if past[name] == most][-1])
    graph: nx.Graph[str] = nx.Graph()
    # A pair that has met costs more than any sum of differences in rank.
    again = len(players) ** 3
    for (first, one), (second, other) in combinations(enumerate(players), 2):
        graph.add_edge(one, other, weight=-((second - first) ** 2) - again * met[frozenset((one, other))])
    pairs = [sorted(pair, key=players.index) for pair in nx.max_weight_matching(graph, maxcardinality=True)]
    return [
        Fixture(_turned(pair, index), derive_seed(seed, number, *sorted(pair), index // 2), number, index)
        for pair in sorted(pairs, key=lambda pair: players.index(pair[0]))
        for index in range(games)
    ]


def check_players(players: Sequence[str], seats: int) -> None:
    """Refuse too few players for a game, or two of one name.

    Raises:
        ConfigError: says which.
    """
    twice = sorted(name for name, count in Counter(players).items() if count > 1)
    if twice:
        raise ConfigError(f"{', '.join(twice)}: more than one player of that name; names must differ")
    if len(players) < seats:
        raise ConfigError(f"{len(players)} players for a game of {seats}: name {seats} or more")


def check_games(games: int, seats: int) -> None:
    """Refuse games that would leave one seat to somebody more often than the others.

    Raises:
        ConfigError: says what to choose.
    """
    if games < 1 or games % seats:
        raise ConfigError(f"games={games} of a pairing cannot be shared by {seats} seats: choose a multiple of {seats}")


def _turned(among: Sequence[str], by: int) -> tuple[str, ...]:
    """The players, each one `by` seats further."""
    shift = by % len(among)
    return (*among[-shift:], *among[:-shift]) if shift else tuple(among)


def _rounds(names: Iterable[str], played: Sequence[Fixture]) -> dict[str, int]:
    """Name -> rounds in which it played."""
    return {name: len({fixture.round for fixture in played if name in fixture.players}) for name in names}
