"""The commands `mas league run|table|match|export`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mas.core.errors import ConfigError

league = typer.Typer(name="league", help="Tournaments of a game: play, look, tell again, export.", no_args_is_help=True)

Place = Annotated[str, typer.Option("--league", metavar="PLACE", help="a file, or a database's URL")]
Name = Annotated[str, typer.Option("--name", help="of the tournament; default: the only one of the league")]
Confidence = Annotated[float, typer.Option(min=0.5, max=0.999, help="of the intervals")]


@league.command()
def run(
    game: Annotated[str, typer.Option(help="PACKAGE:NAME, as open_spiel:kuhn_poker")],
    player: Annotated[
        list[str], typer.Option(help="SOURCE or NAME=SOURCE: random, minimax, cfr:500, mcts:200; again for each")
    ],
    place: Place = "league.db",
    name: Annotated[str, typer.Option(help="of the tournament")] = "tournament",
    games: Annotated[int, typer.Option(min=1, help="of each pairing, as many from each seat")] = 20,
    rounds: Annotated[int, typer.Option(min=0, help="of a Swiss tournament; 0: everybody plays everybody")] = 0,
    seed: Annotated[int, typer.Option(help="of all deals and of players that draw")] = 0,
    at_once: Annotated[int, typer.Option(min=1, help="games that are on at one time")] = 64,
) -> None:
    """Play a tournament, or what is left of it, and print its table."""
    sources = _named(player)
    from mas.league.actions import play_tournament
    from mas.league.tournament import Terms

    terms = Terms(game=game, players=sources, games=games, rounds=rounds, seed=seed)
    play_tournament(place, name, terms, at_once)


@league.command()
def table(
    place: Place = "league.db",
    name: Name = "",
    confidence: Confidence = 0.95,
    precision: Annotated[
        float | None, typer.Option(help="say how many deals a player needs for intervals of +- this many points")
    ] = None,
    bonferroni: Annotated[bool, typer.Option("--bonferroni", help="correct tests by Bonferroni, not by Holm")] = False,
) -> None:
    """The ladder of a tournament with intervals, tests, and what meta-solvers say."""
    from mas.league.actions import print_table

    print_table(place, name, confidence, precision, bonferroni)


@league.command()
def match(
    game: Annotated[str, typer.Argument(metavar="[GAME]", help="id of a game; default: list them")] = "",
    place: Place = "league.db",
    name: Name = "",
    between: Annotated[str, typer.Option(metavar="A,B", help="list only games between these players")] = "",
) -> None:
    """Tell a game again, move by move, or list the games."""
    from mas.league.actions import list_games, tell_game

    if game and between:
        raise ConfigError("--between lists games, and a game is told: leave one of them out")
    for line in [tell_game(place, name, game)] if game else list_games(place, name, between):
        typer.echo(line)


@league.command()
def export(
    place: Place = "league.db",
    name: Name = "",
    out: Annotated[Path, typer.Option(help="a new directory")] = Path("league"),
    confidence: Confidence = 0.95,
    replays: Annotated[int, typer.Option(min=0, help="games of each pairing that the page tells move by move")] = 2,
) -> None:
    """Write a tournament's games and tables as JSON lines and CSV, and a page with ladder, payoffs and replays."""
    from mas.league.actions import write_tournament

    for path in write_tournament(place, name, out, confidence, replays):
        typer.echo(str(path))


def _named(players: Sequence[str]) -> dict[str, str]:
    """Name -> source, from `NAME=SOURCE` or `SOURCE`, which is then its own name."""
    found: dict[str, str] = {}
    for said in players:
        name, _, source = said.rpartition("=")
        name = name or source
        if name in found:
            raise ConfigError(
                f"--player {said}: there is a player {name!r} already; write NAME=SOURCE with another name"
            )
        if not source or not name.strip() or "/" in name or "," in name:
            raise ConfigError(f"--player {said}: write SOURCE or NAME=SOURCE, without '/' and ',' in the name")
        found[name] = source
    return found
