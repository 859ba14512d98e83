"""Tournaments from the command line: opens the players, and shows how far it is where somebody looks."""

import sys
from collections.abc import Mapping
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mas.league.games import World
from mas.league.match import Player
from mas.league.records import Game
from mas.league.sources import open_players
from mas.league.store import Store
from mas.league.tournament import Terms, run_tournament


async def played(name: str, terms: Terms, store: Store, world: World, at_once: int) -> list[Game]:
    """Play what is left of a tournament; all its games.

    Raises:
        As `open_players` and `run_tournament`.
    """
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
