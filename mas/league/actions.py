"""What `mas league` does; imported when one of its commands is called, as scipy is slow to load."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.league.export import export_tournament
from mas.league.match import Player
from mas.league.records import Game
from mas.league.scripted import scripted
from mas.league.standings import Table, standings
from mas.league.statistics import bonferroni, games_needed, holm
from mas.league.store import Store
from mas.league.tell import differences, ladder, notes, story
from mas.league.tournament import Terms, run_tournament
from mas.scenarios.bridges import open_bridge


def play_tournament(league: str, name: str, terms: Terms, at_once: int) -> None:
    """Play a tournament, or what is left of it, and print its table."""
    open_bridge(terms.game)
    players = {own: scripted(source, terms.game) for own, source in terms.players.items()}
    store = Store.open(league)
    found = asyncio.run(_played(name, terms, store, players, at_once))
    _print(standings(list(terms.players), found), f"{name}: {terms.game}, {len(found):,} games")


def print_table(
    league: str, name: str, confidence: float, precision: float | None, with_bonferroni: bool = False
) -> None:
    """Print the ladder, and how many games a precision needs."""
    store, chosen = _chosen(league, name)
    found, terms = store.games(chosen), store.terms(chosen)
    correction = bonferroni if with_bonferroni else holm
    said = standings(list(terms["players"]), found, confidence, correction)
    _print(said, f"{chosen}: {terms['game']}, {len(found):,} games", correction.__name__.title())
    if precision is not None:
        deals = games_needed(precision, confidence)
        games = f", {deals * len(found[0].players):,} games" if found else ""
        Console().print(f"+-{precision} points a game at {confidence:.0%} need {deals:,} deals{games}, at most.")


def tell_game(league: str, name: str, game: str) -> str:
    """A game, move by move."""
    store, chosen = _chosen(league, name)
    return story(open_bridge(store.terms(chosen)["game"]), store.game(chosen, game))


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
    return export_tournament(chosen, terms, said, games, open_bridge(terms["game"]), out, replays)


async def _played(name: str, terms: Terms, store: Store, players: Mapping[str, Player], at_once: int) -> list[Game]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("games", total=None)
        return await run_tournament(
            name,
            terms,
            store,
            lambda: open_bridge(terms.game),
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


def _print(table: Table, title: str, correction: str = "Holm") -> None:
    console = Console()
    console.print(ladder(table, title))
    for grid in differences(table, correction):
        console.print(grid)
    for line in notes(table):
        console.print(line, markup=False, highlight=False)
