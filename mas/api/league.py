"""Tournaments of trained teams, external models and solvers, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mas.api.console import Printout, recording
from mas.api.run import Run
from mas.config.plain_values import literal
from mas.core.concurrency import asynchronous, exclusive
from mas.core.errors import ConfigError

if TYPE_CHECKING:
    from mas.league.standings import Standings

_WIDTH = 120
"""Columns of a printed table."""
Player = Run | str


@dataclass(frozen=True, slots=True)
class Tournament:
    """How a tournament ended. `table`: ratings and payoffs with intervals, and tests; `print` it."""

    table: "Standings"
    printout: Printout = field(repr=False)

    def _repr_html_(self) -> str:
        return self.printout.html

    def __repr__(self) -> str:
        return f"Tournament({', '.join(one.name for one in self.table.standings)})"

    def __str__(self) -> str:
        return self.printout.text


@dataclass(frozen=True, slots=True)
class League:
    """A game, and the file that keeps its tournaments.

    Args:
        game: `SCENARIO:GAME` as `two_player:kuhn_poker`, which trained teams play, short `kuhn` or `kuhn_poker`; or
            `PACKAGE:NAME` as `open_spiel:kuhn_poker`.
        path: of a SQLite file, made by the first tournament, or the URL of a database.
    """

    game: str
    path: Path | str = "league.db"

    @exclusive
    def play(
        self,
        players: Mapping[str, Player] | Sequence[Player],
        *,
        games: int = 20,
        seed: int = 0,
        rounds: int = 0,
        name: str = "tournament",
        at_once: int = 64,
        workers: int = 0,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Tournament:
        """Play a tournament, or what is left of the one of this name. Prints a bar of progress at a terminal.

        Args:
            players: runs, or sources as `mas league run --player` takes them, such as `random`, `solver` or
                `run:runs/kuhn@20`; by name, or in a row: a run is then called as its directory.
            games: of each pairing, as many from each seat. seed: of all deals, and of players that draw.
            rounds: of a Swiss tournament; 0: everybody plays everybody.
            at_once: games that are on at one time.
            workers: processes that play the games, 0: this one. options: of the cluster that they run in, by their
                dotted keys, such as `{"cluster.kind": "ray"}`.

        Raises:
            ConfigError: no such game or player, no collection of players, two of one name, a tournament of this
                name with other terms, or more workers than games. ClusterError: workers cannot be started.
                Otherwise as `mas.league.players.open_players`.
        """
        from mas.league.actions import print_standings, tournament_of
        from mas.league.tournament import Terms
        from mas.league.workers import worker_options

        named = players if isinstance(players, Mapping) else _named(players)
        if wrong := [player for player in named.values() if not isinstance(player, Player)]:
            raise ConfigError(f"player {wrong[0]!r}: a player is a mas.Run or a text such as 'random'")
        sources = {key: f"run:{one.path}" if isinstance(one, Run) else one for key, one in named.items()}
        terms = Terms(game=self.game, players=sources, games=games, rounds=rounds, seed=seed)
        cluster = worker_options(workers, [f"{key}={literal(value)}" for key, value in options.items()])
        table, title = tournament_of(str(self.path), name, terms, at_once, workers=cluster)
        console = recording(_WIDTH)
        print_standings(table, title, console=console)
        return Tournament(table, Printout.of(console))

    play_async = asynchronous(play)


def _named(players: Sequence[Player]) -> dict[str, Player]:
    if isinstance(players, Player):
        raise ConfigError(f"{players!r} is one player: write a list of two or more, such as [run, 'random']")
    found: dict[str, Player] = {}
    for one in players:
        name = one.path.name if isinstance(one, Run) else str(one)
        if name in found or not name.strip() or "/" in name or "," in name:
            raise ConfigError(
                f"player {name!r}: in a row, players have different names without '/' and ','; give them by name, as "
                "{'old': 'run:runs/kuhn@20', 'new': run}"
            )
        found[name] = one
    return found
