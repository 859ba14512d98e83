"""The commands `mas league run|enter|members|forgetting|respond|psro|table|match|export|demo`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.observe.trust_option import Trust

league = typer.Typer(name="league", help="Tournaments of a game, and a pool of members.", no_args_is_help=True)

Place = Annotated[str, typer.Option("--league", metavar="PLACE", help="a file, or a database's URL")]
Name = Annotated[str, typer.Option("--name", help="of the tournament; default: the only one of the league")]
AtOnce = Annotated[int, typer.Option(min=1, help="games that are on at one time")]
SOURCES = "random, solver, minimax, cfr:500, mcts:200, run:DIR@STEP, greedy:DIR, openai:MODEL@URL"
Order = Annotated[
    Literal["rating", "payoff"], typer.Option("--order", help="of the ladder; in poker the payoff tells more")
]
Confidence = Annotated[float, typer.Option(min=0.5, max=0.999, help="of the intervals")]


@league.command()
def run(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="OVERRIDES", help="other options of the cluster: cluster.address=HOST:PORT"),
    ] = None,
    game: Annotated[
        str, typer.Option(help="SCENARIO:GAME, as two_player:kuhn_poker, short kuhn; or PACKAGE:NAME, as open_spiel:go")
    ] = "",
    player: Annotated[list[str] | None, typer.Option(help=f"SOURCE or NAME=SOURCE: {SOURCES}; again for each")] = None,
    members: Annotated[bool, typer.Option("--members", help="all members of the league play, too")] = False,
    place: Place = "league.db",
    name: Annotated[str, typer.Option(help="of the tournament")] = "tournament",
    games: Annotated[int, typer.Option(min=1, help="of each pairing, as many from each seat")] = 20,
    rounds: Annotated[int, typer.Option(min=0, help="of a Swiss tournament; 0: everybody plays everybody")] = 0,
    seed: Annotated[int, typer.Option(help="of all deals and of players that draw")] = 0,
    at_once: AtOnce = 64,
    workers: Annotated[int, typer.Option(min=0, help="processes that play the games; 0: this one plays them")] = 0,
    cluster: Annotated[
        Literal["local", "ray"] | None, typer.Option(help="where workers run; default: local, on this machine")
    ] = None,
    order: Order = "rating",
    trust: Trust = False,
) -> None:
    """Play a tournament, or what is left of it, and print its table."""
    sources = _named(player or [])
    from mas.league.actions import print_standings, tournament_of
    from mas.league.tournament import Terms
    from mas.league.workers import worker_options

    kind = [] if cluster is None else [f"cluster.kind={cluster}"]
    options = worker_options(workers, [*kind, *(overrides or [])])
    terms = Terms(game=game, players=sources, games=games, rounds=rounds, seed=seed)
    print_standings(*tournament_of(place, name, terms, at_once, order, with_members=members, workers=options))


@league.command()
def enter(
    source: Annotated[
        str, typer.Argument(metavar="RUN[@STEP]", help=f"the candidate: a run's directory, or a SOURCE: {SOURCES}")
    ],
    place: Place = "league.db",
    name: Annotated[str, typer.Option(help="of the member; default: RUN-STEP")] = "",
    parent: Annotated[str, typer.Option(help="the member that it was trained from")] = "",
    game: Annotated[str, typer.Option(help="default: that of the league, else that of the run")] = "",
    against: Annotated[str, typer.Option(help="best: the best member; all; or a member's name")] = "best",
    games: Annotated[int, typer.Option(min=2, help="against each of them, as many from each seat")] = 100,
    by: Annotated[Literal["points", "payoff"], typer.Option(help="what is compared, per game")] = "points",
    threshold: Annotated[
        float | None, typer.Option(help="that the lower bound must exceed; default: 0.5 points, a payoff of 0")
    ] = None,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(help="of all deals and of players that draw")] = 0,
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="where members' adapters are kept; default: beside the league")
    ] = None,
    at_once: AtOnce = 64,
    trust: Trust = False,
) -> None:
    """Let a candidate play for a place among the league's members. Exit code 1: it is not let in."""
    from mas.league.actions import enter_member
    from mas.league.match import LeagueMember
    from mas.league.players import candidate_of
    from mas.league.pool import GateTerms

    found, usual = candidate_of(source)
    gate = GateTerms(against=against, games=games, measure=by, threshold=threshold, confidence=confidence, seed=seed)
    (known,) = _named([f"{name or usual}={found}"])
    candidate = LeagueMember(name=known, source=found, parent=parent or None)
    if not enter_member(place, keep, candidate, game, gate, at_once):
        raise typer.Exit(1)


@league.command()
def members(place: Place = "league.db") -> None:
    """The members of a league, from whom they descend, and what the gate measured."""
    from mas.league.actions import print_members

    print_members(place)


@league.command()
def forgetting(
    place: Place = "league.db",
    member: Annotated[str, typer.Option(help="default: the newest")] = "",
    games: Annotated[int, typer.Option(min=2, help="against each ancestor, as many from each seat")] = 100,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(help="of all deals and of players that draw")] = 0,
    at_once: AtOnce = 64,
    trust: Trust = False,
) -> None:
    """Let a member play all its ancestors: whether it can still do what they were let in for."""
    from mas.league.actions import print_forgetting

    print_forgetting(place, member, games, seed, confidence, at_once)


@league.command()
def respond(
    to: Annotated[str, typer.Option("--to", help=f"whom to answer, a SOURCE: {SOURCES}")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="OVERRIDES", help="of the training, as of mas train")
    ] = None,
    game: Annotated[str, typer.Option(help="SCENARIO:GAME, as two_player:kuhn_poker; default: that of the run")] = "",
    out: Annotated[Path, typer.Option(help="the answer's run directory; the same command goes on with it")] = Path(
        "runs/answer"
    ),
    games: Annotated[int, typer.Option(min=2, help="new games by which it is measured, as many from each seat")] = 2000,
    confidence: Confidence = 0.95,
    drawn: Annotated[
        bool, typer.Option("--drawn", help="in these games it draws its moves, as in training, not the likeliest")
    ] = False,
    seed: Annotated[int, typer.Option(help="of the deals of these games")] = 0,
    at_once: AtOnce = 64,
    trust: Trust = False,
) -> None:
    """Train an answer to one player, and say what it gets: a lower bound of how exploitable that player is."""
    from mas.league.actions import print_response

    print_response(to, game, overrides or [], out, games, confidence, seed, at_once, is_drawn=drawn)


@league.command()
def psro(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="OVERRIDES", help="of all trainings, as those of mas train")
    ] = None,
    game: Annotated[str, typer.Option(help="SCENARIO:GAME of two seats")] = "two_player:kuhn_poker",
    solver: Annotated[
        Literal["nash", "uniform", "projected_replicator", "alpha_rank", "risk_averse"],
        typer.Option(help="of meta-strategies"),
    ] = "nash",
    iterations: Annotated[int, typer.Option(min=1, help="answers that each seat trains")] = 5,
    steps: Annotated[int, typer.Option(min=1, help="of training, of each answer")] = 30,
    out: Annotated[Path, typer.Option(metavar="DIR", help="where answers, psro.json and psro.svg are kept")] = Path(
        "runs/psro"
    ),
    games: Annotated[
        int | None, typer.Option(min=1, help="of each pair; default: payoffs are computed, where all moves are scored")
    ] = None,
    start: Annotated[
        Literal["last", "base"], typer.Option(help="answers begin as the seat's last one, or with fresh adapters")
    ] = "last",
    risk: Annotated[float, typer.Option(min=0, help="of risk_averse: mean - RISK * variance of the mix")] = 0.5,
    enough: Annotated[float | None, typer.Option(help="stop once answers gain no more; default: never")] = None,
    trust: Trust = False,
) -> None:
    """Grow a population of adapters for each seat by best answers (PSRO). The same command again goes on."""
    from mas.league.actions import grow_populations
    from mas.league.psro_terms import GrowthTerms

    terms = GrowthTerms(
        game=game,
        solver=solver,
        iterations=iterations,
        steps=steps,
        overrides=tuple(overrides or []),
        games=games,
        start=start,
        risk=risk,
        enough=enough,
    )
    grow_populations(terms, out)


@league.command()
def table(
    place: Place = "league.db",
    name: Name = "",
    confidence: Confidence = 0.95,
    precision: Annotated[
        float | None, typer.Option(help="say how many deals a player needs for intervals of +- this many points")
    ] = None,
    order: Order = "rating",
    bonferroni: Annotated[bool, typer.Option("--bonferroni", help="correct tests by Bonferroni, not by Holm")] = False,
) -> None:
    """The ladder of a tournament with intervals, tests, and what meta-solvers say."""
    from mas.league.actions import print_table

    print_table(place, name, confidence, precision, order, bonferroni)


@league.command()
def match(
    game: Annotated[str, typer.Argument(metavar="GAME", help="id of a game; default: list them")] = "",
    place: Place = "league.db",
    name: Name = "",
    between: Annotated[str, typer.Option(metavar="A,B", help="list only games between these players")] = "",
    trust: Trust = False,
) -> None:
    """Tell a game again, move by move, or list the games."""
    from mas.league.actions import list_games, tell_game

    if game and between:
        raise ConfigError("--between lists games, and a game is told: leave one of them out")
    for line in [tell_game(place, name, game)] if game else list_games(place, name, between):
        typer.echo(printable(line))


@league.command()
def export(
    place: Place = "league.db",
    name: Name = "",
    out: Annotated[Path, typer.Option(help="a new directory")] = Path("league"),
    confidence: Confidence = 0.95,
    replays: Annotated[int, typer.Option(min=0, help="games of each pairing that the page tells move by move")] = 2,
    order: Order = "rating",
    trust: Trust = False,
) -> None:
    """Write a tournament's games and tables as JSON lines and CSV, and a page with ladder, payoffs and replays."""
    from mas.league.actions import write_tournament

    for path in write_tournament(place, name, out, confidence, replays, order):
        typer.echo(str(path))


@league.command()
def demo(
    out: Annotated[Path, typer.Option(help="directory of training, league and page")] = Path("runs/demo-league"),
) -> None:
    """Train on Kuhn poker by self-play, let snapshots play for a ladder, write the page. Again: what is left to do."""
    from rich.console import Console

    from mas.league.demo import run_demo

    run_demo(out, Console())


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
