"""Leagues for tests: real games, in which somebody says what attacks a page."""

from contextlib import closing
from pathlib import Path

from mas.core.concurrency import run_blocking
from mas.league.games import open_world
from mas.league.match import Chance, PlayedGame, Player
from mas.league.players import AtRandom, scripted
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament

TIC_TAC_TOE = "open_spiel:tic_tac_toe"
HOSTILE = "<img src=x onerror=\"document.title='hit'\"><svg onload=\"document.title='hit'\">\x1b[31m\u202e'\"&"


class Attacker:
    """Says what is no move, and loses by it."""

    async def move(self, asked: Chance) -> str:
        return HOSTILE


def make_league(path: Path, name: str = "cup", *, games: int = 4) -> list[PlayedGame]:
    """A league of one tournament of tic-tac-toe: the best player, one that draws lots, and an attacker."""
    world = open_world(TIC_TAC_TOE)
    players: dict[str, Player] = {"best": scripted("minimax", world), "luck": AtRandom(), HOSTILE: Attacker()}
    sources = {"best": "minimax", "luck": "random", HOSTILE: "random"}
    with closing(LeagueStore.open(path)) as store:
        terms = Terms(game=TIC_TAC_TOE, players=sources, games=games, seed=1)
        return run_blocking(run_tournament(name, terms, store, world.open, players))
