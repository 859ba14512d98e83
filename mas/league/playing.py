"""Tournaments from the command line: opens the players, and shows how far it is where somebody looks."""

from functools import partial

from rich.console import Console

from mas.league.games import LeagueWorld
from mas.league.records import PlayedGame
from mas.league.sources import open_players
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament
from mas.observe.progress import counting


async def played(name: str, terms: Terms, store: LeagueStore, world: LeagueWorld, at_once: int) -> list[PlayedGame]:
    """Play what is left of a tournament; all its games.

    Raises:
        As `open_players` and `run_tournament`.
    """
    note = partial(Console(stderr=True).print, style="dim", highlight=False)
    async with open_players(terms.players, world, note) as players:
        with counting() as counted:
            progress = partial(counted, "games")
            return await run_tournament(name, terms, store, world.open, players, at_once=at_once, progress=progress)
