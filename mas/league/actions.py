"""What `mas league` does; imported when one of its commands is called, as scipy is slow to load."""

import shlex
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from mas.config.access import accesses_of
from mas.config.options import WorkerOptions
from mas.config.trust import remember
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.core.printable import printable
from mas.league.export import export_tournament
from mas.league.games import full_name, open_world
from mas.league.match import LeagueMember
from mas.league.players import pinned, play_games
from mas.league.pool import FORGETTING, GATE, GateTerms, ancestors, enter, member_source, play_ancestors, pool_game
from mas.league.psro_terms import FILE, GrowthTerms, command_of
from mas.league.standings import Order, Standings, standings
from mas.league.store import PLAY_AGAIN, LeagueStore
from mas.league.stored_sources import (
    accesses_of_game,
    accesses_of_player,
    check_game,
    check_sources,
    members_beside,
    stored_world,
)
from mas.league.tables import (
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
from mas.league.workers import ALONE, logs_beside, played_by_workers
from mas.observe.charts import curves_svg
from mas.observe.files import write_text_atomic
from mas.observe.significance import bonferroni, games_needed, holm


def tournament_of(
    league: str,
    name: str,
    terms: Terms,
    at_once: int,
    order: Order = "rating",
    *,
    with_members: bool = False,
    workers: WorkerOptions = ALONE,
) -> tuple[Standings, str]:
    """Play a tournament, or what is left of it; its table and a title.

    Args:
        order: of the ladder.
        with_members: all members of the league play, too, and an empty game is theirs.
        workers: processes that play the games; without workers this one plays them.
    """
    terms = replace(terms, game=full_name(terms.game))
    if with_members:
        with _opened(league) as store:
            members = {one.name: one.source for one in store.members()}
            check_sources(members, league)
            usual = pool_game(store)
            if usual and not terms.game:
                check_game(usual, league)
        if twice := sorted(members.keys() & terms.players.keys()):
            raise ConfigError(f"--player {twice[0]}: a member has that name; choose another one")
        terms = replace(terms, players={**members, **terms.players}, game=terms.game or usual)
    if not terms.game:
        raise ConfigError("--game says what is played, as --game open_spiel:kuhn_poker")
    world = open_world(terms.game)
    remember(accesses_of_game(terms.game))  # the command line's, or allowed
    terms = replace(terms, players=pinned(terms.players))
    with _made(league) as store:
        found = run_blocking(
            played_by_workers(name, terms, store, world, at_once, workers, logs_beside(league))
            if workers.workers
            else play_games(name, terms, store, world, at_once)
        )
    return standings(list(terms.players), found, order=order), f"{name}: {terms.game}, {len(found):,} games"


def grow_populations(terms: GrowthTerms, out: Path) -> None:
    """Grow populations, or what is left to be grown, and draw how far their mixes were from an equilibrium."""
    from mas.league.psro_run import Populations

    terms = msgspec.structs.replace(terms, game=full_name(terms.game))
    populations = Populations(terms, out, Console())
    try:
        found = populations.grow()
    except KeyboardInterrupt:
        again = shlex.join(command_of(terms, out))
        Console(stderr=True).print(Text(f"stopped. Go on with: {again}"), soft_wrap=True)
        raise typer.Exit(130) from None
    path = out / "psro.svg"
    write_text_atomic(path, curves_svg([growth_chart(terms.game, found)], columns=1))
    Console().print(f"{out / FILE}   {path}", style="dim", highlight=False, markup=False, soft_wrap=True)


def print_table(
    league: str,
    name: str,
    confidence: float,
    precision: float | None,
    order: Order = "rating",
    with_bonferroni: bool = False,
) -> None:
    """Print the ladder, and how many games a precision needs."""
    with _chosen(league, name) as (store, chosen):
        found, terms = store.games(chosen), store.terms(chosen)
    correction = bonferroni if with_bonferroni else holm
    said = standings(list(terms["players"]), found, confidence, correction, order)
    print_standings(said, f"{chosen}: {terms['game']}, {len(found):,} games", correction.__name__.title())
    if precision is not None:
        deals = games_needed(precision, confidence)
        games = f", {deals * len(found[0].players):,} games" if found else ""
        Console().print(f"+-{precision} points a game at {confidence:.0%} need {deals:,} deals{games}, at most.")


def tell_game(league: str, name: str, game: str) -> str:
    """A game, move by move."""
    with _chosen(league, name) as (store, chosen):
        return story(stored_world(store.terms(chosen)["game"], league).open(), store.game(chosen, game))


def list_games(league: str, name: str, between: str) -> Iterator[str]:
    """A line for each game, of all or of those between some players."""
    with _chosen(league, name) as (store, chosen):
        known, games = store.terms(chosen)["players"], store.games(chosen)
    wanted = set(between.split(",")) - {""}
    for player in sorted(wanted):
        if player not in known:
            raise ConfigError(f"--between: no player {player!r} in {chosen!r}. {did_you_mean(player, known)}")
    for game in games:
        if wanted <= set(game.players):
            got = "  ".join(f"{own} {paid:+g}" for own, paid in zip(game.players, game.returns, strict=True))
            yield f"{game.id}\t{got}\t{len(game.moves)} moves"


def write_tournament(
    league: str, name: str, out: Path, confidence: float, replays: int, order: Order = "rating"
) -> list[Path]:
    """Files and page of a tournament, into a new directory."""
    with _chosen(league, name) as (store, chosen):
        terms, games = store.terms(chosen), store.games(chosen)
        world = stored_world(store.terms(chosen)["game"], league)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunDirectoryError(f"{out} is not an empty directory: choose another --out")
    said = standings(list(terms["players"]), games, confidence, order=order)
    return export_tournament(chosen, terms, said, games, world.open(), out, replays)


def enter_member(
    league: str, keep: Path | None, candidate: LeagueMember, game: str, gate: GateTerms, at_once: int
) -> bool:
    """Let a candidate play for its place, and print what came of it; whether it is a member now."""
    keep, game = keep or members_beside(league), full_name(game)
    with _made(league) as store:
        check_sources({one.name: one.source for one in store.members()}, league)
        if (usual := pool_game(store)) and game != usual:
            check_game(usual, league)
        verdict = enter(store, keep, candidate, game, gate, at_once)
        if verdict.passes:
            remember(accesses_of_player(candidate.name, member_source(keep, candidate), league))
    Console().print(verdict_line(candidate.name, verdict), markup=False, highlight=False, soft_wrap=True)
    return verdict.passes


def print_members(league: str) -> None:
    """Print the members with their lineage."""
    with _opened(league) as store:
        Console().print(lineage(store.members(), pool_game(store)))


def print_forgetting(league: str, name: str, games: int, seed: int, confidence: float, at_once: int) -> None:
    """Let a member play its ancestors, and print what it has forgotten."""
    with _opened(league) as store:
        check_sources({one.name: one.source for one in store.members()}, league)
        if usual := pool_game(store):
            check_game(usual, league)
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
    config, console = response_config(to, full_name(game), overrides), Console()
    with suppress(OSError):  # the answer's run begins with adapters that the command line named
        remember([one for one in accesses_of(config) if one.kind == "start"])
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


@contextmanager
def _made(league: str) -> Iterator[LeagueStore]:
    """The league, made where there is none; the file of one that was made and got nothing is removed on an error."""
    is_new = "://" not in league and not Path(league).exists()
    with closing(LeagueStore.open(league)) as store:
        try:
            yield store
        except BaseException:
            if is_new and not store.tournaments() and not store.members():
                store.close()
                Path(league).unlink()
            raise


@contextmanager
def _opened(league: str) -> Iterator[LeagueStore]:
    if "://" not in league and not Path(league).is_file():
        raise ConfigError(f"there is no league at {league}: mas league run and mas league enter make one")
    with closing(LeagueStore.open(league)) as store:
        yield store


@contextmanager
def _chosen(league: str, name: str) -> Iterator[tuple[LeagueStore, str]]:
    """The league, and which of its tournaments is meant."""
    with _opened(league) as store:
        chosen = _tournament(store, name)
        for game, why in store.damaged(chosen).items():
            said = f"game {game!r} is damaged and left out ({why}): {PLAY_AGAIN}"
            Console(stderr=True).print(Text(printable(said)), soft_wrap=True)
        yield store, chosen


def _tournament(store: LeagueStore, name: str) -> str:
    if name:
        store.terms(name)
        return name
    known = [one for one in store.tournaments() if not one.startswith((GATE, FORGETTING))]
    if len(known) != 1:
        raise ConfigError(
            f"which tournament? --name is one of: {', '.join(known)}" if known else "this league is empty"
        )
    return known[0]


def print_standings(table: Standings, title: str, correction: str = "Holm", console: Console | None = None) -> None:
    """Print the ladder, the differences and what to know of them. `console`: None: standard output."""
    console = console or Console()
    console.print(ladder(table, title))
    for grid in differences(table, correction):
        console.print(grid)
    for line in notes(table):
        console.print(line, markup=False, highlight=False)
