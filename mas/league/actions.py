"""What `mas league` does; imported when one of its commands is called, as scipy is slow to load."""

import asyncio
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.league.export import export_tournament
from mas.league.games import open_world
from mas.league.gate import ancestors
from mas.league.growth_terms import FILE, GrowthTerms, command_of
from mas.league.playing import played
from mas.league.pool import FORGETTING, GATE, GateTerms, enter, play_ancestors, pool_game
from mas.league.records import Member
from mas.league.sources import pinned
from mas.league.standings import Table, standings
from mas.league.statistics import bonferroni, games_needed, holm
from mas.league.store import Store
from mas.league.tell import (
    differences,
    forgetting,
    growth_chart,
    ladder,
    lineage,
    notes,
    response_lines,
    story,
    verdict_line,
)
from mas.league.tournament import Terms
from mas.observe.atomic import write_text_atomic
from mas.observe.curves_svg import curves_svg


def play_tournament(league: str, name: str, terms: Terms, at_once: int, *, with_members: bool = False) -> None:
    """Play a tournament, or what is left of it, and print its table.

    Args:
        with_members: all members of the league play, too, and an empty game is theirs.
    """
    if with_members:
        store = _opened(league)
        members = {one.name: one.source for one in store.members()}
        if twice := sorted(members.keys() & terms.players.keys()):
            raise ConfigError(f"--player {twice[0]}: a member has that name; choose another one")
        terms = replace(terms, players={**members, **terms.players}, game=terms.game or pool_game(store))
    if not terms.game:
        raise ConfigError("--game says what is played, as --game open_spiel:kuhn_poker")
    world = open_world(terms.game)
    terms = replace(terms, players=pinned(terms.players))
    store = Store.open(league)
    found = asyncio.run(played(name, terms, store, world, at_once))
    _print(standings(list(terms.players), found), f"{name}: {terms.game}, {len(found):,} games")


def grow_populations(terms: GrowthTerms, out: Path) -> None:
    """Grow populations, or what is left to be grown, and draw how far their mixes were from an equilibrium."""
    from mas.league.growth import Populations

    populations = Populations(terms, out, Console())
    try:
        found = populations.grow()
    except KeyboardInterrupt:
        again = shlex.join(command_of(terms, out))
        Console(stderr=True).print(Text(f"stopped. Go on with: {again}"), soft_wrap=True)
        raise typer.Exit(130) from None
    path = out / "psro.svg"
    write_text_atomic(path, curves_svg([growth_chart(terms.game, found)], columns=1))
    Console().print(f"{out / FILE}   {path}", style="dim", highlight=False, soft_wrap=True)


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


def enter_member(league: str, keep: Path | None, candidate: Member, game: str, gate: GateTerms, at_once: int) -> bool:
    """Let a candidate play for its place, and print what came of it; whether it is a member now."""
    if keep is None and "://" in league:
        raise ConfigError(f"--league {league} is no file beside which adapters could lie: say where, --keep DIR")
    keep = keep or Path(league).with_suffix(".members")
    verdict = enter(Store.open(league), keep, candidate, game, gate, at_once)
    Console().print(verdict_line(candidate.name, verdict), markup=False, highlight=False, soft_wrap=True)
    return verdict.passes


def print_members(league: str) -> None:
    """Print the members with their lineage."""
    store = _opened(league)
    Console().print(lineage(store.members(), pool_game(store)))


def print_forgetting(league: str, name: str, games: int, seed: int, confidence: float, at_once: int) -> None:
    """Let a member play its ancestors, and print what it has forgotten."""
    store = _opened(league)
    member, found = play_ancestors(store, name, games=games, seed=seed, at_once=at_once)
    Console().print(forgetting(member, ancestors(store.members(), member.name), found, confidence))


def print_response(
    to: str,
    game: str,
    overrides: list[str],
    out: Path,
    games: int,
    confidence: float,
    seed: int,
    at_once: int,
    *,
    is_drawn: bool = False,
) -> None:
    """Train an answer to a player, and print what it gets against it."""
    from mas.league.respond import respond, response_config

    if any(word.lstrip("+").startswith(("run_dir=", "algorithm.opponents")) for word in overrides):
        raise ConfigError("run_dir and algorithm.opponents are said by --out and --to: leave them out")
    config, console = response_config(to, game, overrides), Console()
    found = respond(
        to,
        config,
        out,
        games=games,
        seed=seed,
        confidence=confidence,
        at_once=at_once,
        is_drawn=is_drawn,
        console=console,
    )
    for line in response_lines(found, confidence):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _opened(league: str) -> Store:
    if "://" not in league and not Path(league).is_file():
        raise ConfigError(f"there is no league at {league}: mas league run and mas league enter make one")
    return Store.open(league)


def _chosen(league: str, name: str) -> tuple[Store, str]:
    """The league, and which of its tournaments is meant."""
    store = _opened(league)
    if name:
        store.terms(name)
        return store, name
    known = [one for one in store.tournaments() if not one.startswith((GATE, FORGETTING))]
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
