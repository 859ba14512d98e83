"""Plays all fixtures that a store does not have yet, several at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mas.core.concurrency import together
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.league.match import Player, play
from mas.league.pairing import Fixture, gauntlet, round_robin, swiss_round
from mas.league.records import PlayedGame
from mas.league.store import LeagueStore

AT_ONCE = 64
"""Games that are on at one time: enough for an engine to answer many players in one batch."""

Progress = Callable[[int, int], None]
"""(games played, games of the round) -> nothing."""


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
        """Plain values, for a store."""
        return {
            "game": self.game,
            "players": dict(self.players),
            "games": self.games,
            "rounds": self.rounds,
            "seed": self.seed,
            "challenger": self.challenger,
        }


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
    """Play what is left of a tournament; a killed one goes on where it was.

    Args:
        open_game: a new game for each worker.
        players: by name; all of `terms.players`.
        progress: told after every game.

    Returns:
        All games, those of earlier runs too.

    Raises:
        ConfigError: other terms than the tournament was begun with, or terms that leave seats unbalanced.
    """
    seats = len(open_game().spec.seats)
    if (terms.rounds or terms.challenger) and seats != 2:
        kind = "a Swiss tournament" if terms.rounds else "one against all"
        raise ConfigError(f"{kind} is for games of two seats, {terms.game} has {seats}: use a round robin")
    names = tuple(terms.players)
    if terms.rounds:
        swiss_round(dict.fromkeys(names, 0.0), [], games=terms.games, seed=terms.seed, number=0)
        store.begin(name, terms.as_dict())
        for number in range(terms.rounds):
            before = [game for game in store.games(name) if game.round < number]
            fixtures = swiss_round(
                points_of(names, before), _fixtures(before), games=terms.games, seed=terms.seed, number=number
            )
            await _play_missing(name, fixtures, store, open_game, players, at_once, progress)
    else:
        if terms.challenger:
            others = [player for player in names if player != terms.challenger]
            fixtures = gauntlet(terms.challenger, others, games=terms.games, seed=terms.seed)
        else:
            fixtures = round_robin(names, seats=seats, games=terms.games, seed=terms.seed)
        store.begin(name, terms.as_dict())
        await _play_missing(name, fixtures, store, open_game, players, at_once, progress)
    return store.games(name)


def points_of(players: Sequence[str], games: Sequence[PlayedGame]) -> dict[str, float]:
    """Points of each player in all games."""
    found = dict.fromkeys(players, 0.0)
    for game in games:
        for name, points in zip(game.players, game.points, strict=True):
            found[name] += points
    return found


async def _play_missing(
    name: str,
    fixtures: Sequence[Fixture],
    store: LeagueStore,
    open_game: Callable[[], Environment],
    players: Mapping[str, Player],
    at_once: int,
    progress: Progress,
) -> None:
    kept = store.ids(name)
    left = [fixture for fixture in fixtures if fixture.id not in kept]
    queue, done = iter(left), len(fixtures) - len(left)
    progress(done, len(fixtures))

    async def worker() -> None:
        nonlocal done
        game = open_game()
        for fixture in queue:
            store.add(name, await play(game, fixture, players))
            done += 1
            progress(done, len(fixtures))

    await together([worker() for _ in range(min(at_once, len(left)))], "game")


def _fixtures(games: Sequence[PlayedGame]) -> list[Fixture]:
    return [Fixture(game.players, game.seed, game.round, game.number) for game in games]
