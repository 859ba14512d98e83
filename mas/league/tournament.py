"""Tournaments: who plays whom, with seats and seeds balanced, and playing all fixtures that a store does not have yet.

Round robins, Swiss rounds and one against all; several games at a time.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations

import networkx as nx

from mas.core.concurrency import together
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.seeds import derive_seed
from mas.league.match import Fixture, LocalGames, PlayedGame, Player
from mas.league.store import LeagueStore

AT_ONCE = 64
"""Games that are on at one time: enough for an engine to answer many players in one batch."""
Progress = Callable[[int, int], None]
"""(games played, games of the round) -> nothing."""
PlayMatch = Callable[[Fixture], Awaitable[PlayedGame]]
"""Plays a fixture to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a tournament is played by.

    Attributes:
        game: id of the game.
        players: name -> how the player is opened.
        games: of each pairing, a multiple of the seats.
        rounds: of a Swiss tournament; 0: a round robin.
        challenger: who plays all others, who do not play each other; empty: all pairings.
    """

    game: str
    players: Mapping[str, str]
    games: int
    rounds: int = 0
    seed: int = 0
    challenger: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"players": dict(self.players)}


async def run_tournament(
    name: str,
    terms: Terms,
    store: LeagueStore,
    open_game: Callable[[], Environment],
    players: Mapping[str, Player],
    *,
    at_once: int = AT_ONCE,
    progress: Progress = lambda done, of: None,
) -> list[PlayedGame]:
    """As `run_matches`, with games and players of this process.

    Args:
        open_game: a new game for each that is on at one time.
        players: by name; all of `terms.players`.
    """
    seats, games = len(open_game().spec.seats), LocalGames(open_game, players)
    return await run_matches(name, terms, store, seats, games.play, at_once=at_once, progress=progress)


async def run_matches(
    name: str,
    terms: Terms,
    store: LeagueStore,
    seats: int,
    play: PlayMatch,
    *,
    at_once: int = AT_ONCE,
    progress: Progress = lambda done, of: None,
) -> list[PlayedGame]:
    """Play what is left of a tournament; a killed one resumes.

    Args:
        seats: of the game.
        play: called for many fixtures at once.
        progress: told after every game.

    Returns:
        All games, those of earlier runs too.

    Raises:
        ConfigError: other terms than the tournament was begun with, terms that leave seats unbalanced, or no game that
            may be on.
    """
    fixtures = first_fixtures(terms, seats)
    if at_once < 1:
        raise ConfigError(f"at_once={at_once}: one game at least is on at a time")
    store.begin(name, terms.as_dict())
    for number in range(max(1, terms.rounds)):
        if terms.rounds:
            before = [game for game in store.games(name) if game.round < number]
            points = points_of(tuple(terms.players), before)
            fixtures = swiss_round(points, before, games=terms.games, seed=terms.seed, number=number)
        await _play_missing(name, fixtures, store, play, at_once, progress)
    return store.games(name)


def first_fixtures(terms: Terms, seats: int) -> list[Fixture]:
    """The games of the first round of a Swiss tournament, which has as many in each; all games of another one.

    Raises:
        ConfigError: terms that leave seats unbalanced, too few players, or a game of more seats than it can have.
    """
    if terms.rounds < 0:
        raise ConfigError(f"rounds={terms.rounds}: write 1 or more of a Swiss tournament, 0 for a round robin")
    if (terms.rounds or terms.challenger) and seats != 2:
        kind = "a Swiss tournament" if terms.rounds else "one against all"
        raise ConfigError(f"{kind} is for games of two seats, {terms.game} has {seats}: use a round robin")
    names = tuple(terms.players)
    if terms.rounds:
        return swiss_round(dict.fromkeys(names, 0.0), [], games=terms.games, seed=terms.seed, number=0)
    if terms.challenger:
        others = [player for player in names if player != terms.challenger]
        return gauntlet(terms.challenger, others, games=terms.games, seed=terms.seed)
    return round_robin(names, seats=seats, games=terms.games, seed=terms.seed)


def points_of(players: Sequence[str], games: Sequence[PlayedGame]) -> dict[str, float]:
    """Points of each player in all games."""
    found = dict.fromkeys(players, 0.0)
    for game in games:
        for name, points in zip(game.players, game.points, strict=True):
            found[name] += points
    return found


async def _play_missing(
    name: str, fixtures: Sequence[Fixture], store: LeagueStore, play: PlayMatch, at_once: int, progress: Progress
) -> None:
    kept = store.ids(name)
    left = [fixture for fixture in fixtures if fixture.id not in kept]
    queue, done = iter(left), len(fixtures) - len(left)
    progress(done, len(fixtures))

    async def worker() -> None:
        nonlocal done
        for fixture in queue:
            store.add(name, await play(fixture))
            done += 1
            progress(done, len(fixtures))

    await together([worker() for _ in range(min(at_once, len(left)))], "game")


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
    return _rounds_of(list(combinations(sorted(players), seats)), games, seed)


def gauntlet(challenger: str, others: Sequence[str], *, games: int, seed: int) -> list[Fixture]:
    """One player meets each of the others `games` times, each deal from both seats; the others do not meet.

    Args:
        games: an even number.

    Raises:
        ConfigError: nobody to meet, two of one name, or an odd number of games.
    """
    check_players((challenger, *others), 2)
    check_games(games, 2)
    return _rounds_of([(challenger, other) for other in others], games, seed)


def _rounds_of(groups: Sequence[tuple[str, ...]], games: int, seed: int) -> list[Fixture]:
    """So many games of each group, each deal from every seat; round r holds the r-th game of all groups."""
    return [
        Fixture(_turned(among, number), derive_seed(seed, *sorted(among), number // len(among)), number, number)
        for number in range(games)
        for among in groups
    ]


def swiss_round(
    points: Mapping[str, float], played: Sequence[Fixture | PlayedGame], *, games: int, seed: int, number: int
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
    """Refuse too few players for a game, two of one name, or names that would give two games one id.

    Raises:
        ConfigError: says which.
    """
    twice = sorted(name for name, count in Counter(players).items() if count > 1)
    if twice:
        raise ConfigError(f"{', '.join(twice)}: more than one player of that name; names must differ")
    if wrong := next((name for name in players if "/" in name), None):
        raise ConfigError(f"player {wrong!r}: '/' stands between names in the ids of games; choose another name")
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


def _rounds(names: Iterable[str], played: Sequence[Fixture | PlayedGame]) -> dict[str, int]:
    """Name -> rounds in which it played."""
    return {name: len({fixture.round for fixture in played if name in fixture.players}) for name in names}
