"""What `mas league` does; imported when one of its commands is called, as scipy is slow to load."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.league.export import export_tournament
from mas.league.games import World, open_world
from mas.league.match import Player
from mas.league.records import Game
from mas.league.sources import open_players, pinned
from mas.league.standings import Table, standings
from mas.league.statistics import games_needed
from mas.league.store import Store
from mas.league.tell import differences, ladder, notes, story
from mas.league.tournament import Terms, run_tournament


def play_tournament(league: str, name: str, terms: Terms, at_once: int) -> None:
    """Play a tournament, or what is left of it, and print its table."""
    world = open_world(terms.game)
    terms = replace(terms, players=pinned(terms.players))
    store = Store.open(league)
    found = asyncio.run(played(name, terms, store, world, at_once))
    _print(standings(list(terms.players), found), f"{name}: {terms.game}, {len(found):,} games")


def print_table(league: str, name: str, confidence: float, precision: float | None) -> None:
    """Print the ladder, and how many games a precision needs."""
    store, chosen = _chosen(league, name)
    found, terms = store.games(chosen), store.terms(chosen)
    _print(standings(list(terms["players"]), found, confidence), f"{chosen}: {terms['game']}, {len(found):,} games")
    if precision is not None:
        needed = games_needed(precision, confidence)
        Console().print(f"+-{precision} points a game at {confidence:.0%} need {needed:,} games of a pairing at most.")


def tell_game(league: str, name: str, game: str) -> str:
    """A game, move by move."""
    store, chosen = _chosen(league, name)
    return story(open_world(store.terms(chosen)["game"]).open(), store.game(chosen, game))


def list_games(league: str, name: str, between: str) -> Iterator[str]:
    """A line for each game, of all or of those between some players."""
    store, chosen = _chosen(league, name)
    wanted, known = set(between.split(",")) - {""}, store.terms(chosen)["players"]
    for player in sorted(wanted):
        if player not in known:
            raise ConfigError(f"--between: no player {player!r} in {chosen!r}. {did_you_mean(player, known)}")
    for game in store.games(chosen):
        if wanted <= set(game.players):
            got = "  ".join(f"{own} {paid:+g}" for own, paid in zip(game.players, game.returns, strict=True))
            yield f"{game.id}\t{got}\t{len(game.moves)} moves"


def write_tournament(league: str, name: str, out: Path, confidence: float, replays: int) -> list[Path]:
    """Files and page of a tournament, into a new directory."""
    store, chosen = _chosen(league, name)
    terms = store.terms(chosen)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(f"{out} is not an empty directory: choose another --out")
    games = store.games(chosen)
    said = standings(list(terms["players"]), games, confidence)
    return export_tournament(chosen, terms, said, games, open_world(terms["game"]).open(), out, replays)


async def played(name: str, terms: Terms, store: Store, world: World, at_once: int) -> list[Game]:
    """Open the players and play what is left, with a bar where somebody looks."""
    note = partial(Console(stderr=True).print, style="dim", highlight=False)
    async with open_players(terms.players, world, note) as players:
        return await _watched(name, terms, store, world, players, at_once)


async def _watched(
    name: str, terms: Terms, store: Store, world: World, players: Mapping[str, Player], at_once: int
) -> list[Game]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("games", total=None)
        return await run_tournament(
            name,
            terms,
            store,
            world.open,
            players,
            at_once=at_once,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )


def _chosen(league: str, name: str) -> tuple[Store, str]:
    """The league, and which of its tournaments is meant."""
    if "://" not in league and not Path(league).is_file():
        raise ConfigError(f"there is no league at {league}: mas league run makes one")
    store = Store.open(league)
    known = list(store.tournaments())
    if name:
        store.terms(name)
        return store, name
    if len(known) != 1:
        raise ConfigError(
            f"which tournament? --name is one of: {', '.join(known)}" if known else "this league is empty"
        )
    return store, known[0]


def _print(table: Table, title: str) -> None:
    console = Console()
    console.print(ladder(table, title))
    if (grid := differences(table)) is not None:
        console.print(grid)
    for line in notes(table):
        console.print(line, markup=False, highlight=False)
