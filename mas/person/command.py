"""The command `mas play`: a person takes roles of a scenario's team, or seats of a game."""

import asyncio
import importlib
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console
from rich.text import Text

from mas.config.access import PLAYS
from mas.config.checks import check_peers, is_bridged
from mas.config.load import load_config
from mas.config.options import Config
from mas.config.plain_values import literal
from mas.config.stored_run import load_run_config
from mas.core.environment import Environment, Script, Task, random_script
from mas.core.errors import ConfigError
from mas.core.naming import listed
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.load import find_team
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import OVERRIDES_HELP, check_sampling, check_used
from mas.runs.resolve import check_fits, configured_scenario, resolve
from mas.scenarios import find_scenario
from mas.scenarios.catalogue import size_overrides
from mas.scenarios.team_lookup import scenario_and_team
from mas.scenarios.world import expert_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from mas.person.cast import Partners
    from mas.person.team import PartnerDesk
    from mas.runtime.team import TeamRuntime

BRIDGES = "mas.scenarios.bridges"
"""The module whose `open_bridge(name)` opens games of other libraries, such as `open_spiel:tic_tac_toe`."""
_WORLD = ("scenario.options", "algorithm.team")
_SPOKEN = (*_WORLD, "algorithm=", "algorithm.policy", "model", "engine", "peers", "train.answer_timeout_s")
OTHERS = ("model", "random", "expert")


class PlayRequest(NamedTuple):
    """What the command was asked. `others` None: it was not said."""

    name: str
    words: list[str]
    people: list[str]
    others: str | None
    run_dir: Path | None
    task: int
    seed: int
    is_sampled: bool
    reveal: bool
    size: str | None = None


def play(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="SCENARIO or SCENARIO/TEAM, or LIBRARY:GAME")],
    words: Annotated[list[str] | None, typer.Argument(metavar="OVERRIDES", help=OVERRIDES_HELP)] = None,
    people: Annotated[
        list[str] | None,
        typer.Option("--as", metavar="NAME", help="your role or member, or your seat of a game; repeatable"),
    ] = None,
    others: Annotated[
        str | None,
        typer.Option(help="who plays the rest: model (a team's default), random (a game's default) or expert"),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run", metavar="RUN_DIR", help="the other roles speak as this run trained them"),
    ] = None,
    size: Annotated[str | None, typer.Option(help="small, medium, ...; default: the smallest")] = None,
    task: Annotated[int, typer.Option(min=0, help="number of the held-out task")] = 0,
    seed: Annotated[int, typer.Option(help="of what the others draw")] = 0,
    sampled: Annotated[bool, typer.Option("--sampled", help="the model samples instead of speaking greedily")] = False,
    reveal: Annotated[bool, typer.Option("--reveal", help="show the whole world at the end")] = False,
    trust: Trust = False,
) -> None:
    """Play along at the terminal. You see what your role or seat sees; Ctrl-D ends the play."""
    run_dir = None if run_dir is None else local_run(run_dir)
    asked = PlayRequest(name, words or [], people or [], others, run_dir, task, seed, sampled, reveal, size)
    if others is not None and others not in OTHERS:
        raise ConfigError(f"--others {others}: nobody plays like that. Possible: {', '.join(OTHERS)}")
    if is_bridged(name):
        _play_game(asked, *_bridged(asked))
        return
    config, scenario = _configured(asked)
    environment = scenario.environment()
    if len(environment.spec.seats) > 1:
        if scenario_and_team(name)[1]:
            raise ConfigError(f"{name}: people take seats of {scenario.name}, not roles of a team; name no team")
        check_used("play", asked.words, ("scenario.options",))
        environment.reset(scenario.task("eval", task))
        _play_game(asked, environment, expert_of(scenario))
    else:
        _play_team(asked, config, scenario)


def _configured(asked: PlayRequest) -> tuple[Config, Scenario]:
    """The scenario and the team that its name, a run and overrides make.

    Raises:
        ConfigError: they contradict each other, or have no effect.
    """
    name, team = scenario_and_team(asked.name)
    find_scenario(name)
    if asked.run_dir is None:
        if team and any(word.lstrip("+").startswith("algorithm.team=") for word in asked.words):
            raise ConfigError(f"{asked.name} names a team, and algorithm.team= another one; name one")
        named = [f"scenario.name={literal(name)}", *([f"algorithm.team={team}"] if team else [])]
        config = load_config([*named, *size_overrides(name, asked.size), *asked.words])
    else:
        if asked.size is not None:
            raise ConfigError(f"--size {asked.size}: run {asked.run_dir} keeps the size that it was trained at")
        config = load_run_config(asked.run_dir, asked.words, uses=PLAYS)
        trained = f"{config.scenario.name}/{config.algorithm.team}"
        if config.scenario.name != name or (team and team != config.algorithm.team):
            raise ConfigError(f"run {asked.run_dir} trained {trained}, not {asked.name}")
    check_used("play", asked.words, _WORLD if asked.others in ("random", "expert") else _SPOKEN)
    return config, configured_scenario(config)


def _bridged(asked: PlayRequest) -> tuple[Environment, Script | None]:
    """A game of another library, reset to the task, and its expert.

    Raises:
        ConfigError: there is no such game, or there are no bridges.
    """
    if asked.words:
        raise ConfigError(f"{asked.words[0]!r} has no effect on a game of another library")
    if asked.size is not None:
        raise ConfigError(f"--size {asked.size}: games of other libraries have none")
    try:
        bridges = importlib.import_module(BRIDGES)
    except ModuleNotFoundError as error:
        if error.name != BRIDGES:
            raise
        raise ConfigError(f"{asked.name!r} would be a game of another library, and there are no bridges here") from None
    opened = bridges.open_bridge(asked.name)
    if isinstance(opened, Environment):
        opened.reset(Task(id=f"eval-{asked.task}", seed=derive_seed("play", asked.name, asked.task), split="eval"))
        return opened, None
    environment = opened.environment()
    environment.reset(opened.task("eval", asked.task))
    return environment, expert_of(opened)


def _play_game(asked: PlayRequest, environment: Environment, expert: Script | None) -> None:
    from mas.person.seats import SeatPlay, seats_of

    if asked.others == "model" or asked.run_dir is not None or asked.is_sampled:
        raise ConfigError(
            "no model takes a seat of a game: --others random or --others expert, without --run. Against a trained "
            "player: enter its run into a league (mas league enter), and play there with mas studio --play"
        )
    people = seats_of(environment, asked.people)
    _check_needed(asked, are_others=len(people) < len(environment.spec.seats))
    others = random_script if asked.others != "expert" else _expert(environment.spec.name, expert)
    random = Random(derive_seed("others", asked.seed))
    with open(0, encoding="utf-8", errors="replace", closefd=False) as lines:
        playing = SeatPlay(environment, people, others, random, Console(), lines.readline)
        is_over = playing.play()
    playing.tell_end(is_over=is_over, reveal=asked.reveal)


def _expert(name: str, expert: Script | None) -> Script:
    if expert is None:
        raise ConfigError(f"{name} has no expert; --others random is possible")
    return expert


def _check_needed(asked: PlayRequest, *, are_others: bool) -> None:
    """Refuse to be told about others where there are none."""
    given = {"--others": asked.others, "--run": asked.run_dir, "--sampled": asked.is_sampled or None}
    for option, value in given.items():
        if value is not None and not are_others:
            raise ConfigError(f"{option} is about the others, and people play everything here")


def _play_team(asked: PlayRequest, config: Config, scenario: Scenario) -> None:
    from mas.person.cast import recast, with_people
    from mas.person.score import OwnTerms
    from mas.person.team import PartnerDesk, TeamPlay, tell_end, without_model

    found = find_team(scenario, config.algorithm.team)
    check_peers(config, found)
    team, people = with_people(found, asked.people)
    rest = [name for name in (*dict.fromkeys(team.members().values()), *team.stand_ins()) if name not in people]
    _check_needed(asked, are_others=bool(rest))
    console, environment, task = Console(), scenario.environment(), scenario.task("eval", asked.task)
    environment.reset(task)
    partners = _partners(asked, scenario, team, rest, environment)
    desk = PartnerDesk(console, partners)
    has_model = bool(rest) and partners is None
    cast = recast(team, people if has_model else team.roles)
    theirs = {agent: role for agent, role in found.members().items() if team.members()[agent] in people}
    own = OwnTerms(scenario.reward, theirs)

    async def show() -> None:
        opening = _with_model(asked, config, scenario, cast, desk) if has_model else without_model(cast, desk)
        temperature = None if asked.is_sampled else 0.0
        async with opening as runtime:
            playing = TeamPlay(runtime, desk, environment, console, own)
            episode = await playing.play(task, asked.seed, temperature=temperature)
        tell_end(console, environment, episode, own.paid, reveal=asked.reveal)

    asyncio.run(show())


def _partners(
    asked: PlayRequest, scenario: Scenario, team: TeamSpec, rest: list[str], environment: Environment
) -> "Partners | None":
    """Who plays the rest of the roles without a model; None: a model does, or there is no rest."""
    from mas.person.cast import Partners

    if not rest or asked.others not in ("random", "expert"):
        return None
    if asked.run_dir is not None or asked.is_sampled:
        raise ConfigError(f"--run and --sampled are about a model, and --others {asked.others} plays without one")
    expert = _expert(scenario.name, expert_of(scenario)) if asked.others == "expert" else None
    acting = {team.members()[agent] for agent in team.joint or (team.output,)}
    if expert is not None and not acting & set(rest):
        raise ConfigError(f"the expert decides what the team does, as {listed(acting)}, and you play that")
    return Partners(team, rest, environment, asked.seed, expert)


def _with_model(
    asked: PlayRequest, config: Config, scenario: Scenario, cast: TeamSpec, desk: "PartnerDesk"
) -> "AbstractAsyncContextManager[TeamRuntime]":
    """The rest of the team as `mas run` opens it.

    Raises:
        ConfigError: the tiny base cannot read what a role is told, or the engine cannot sample with its limits.
    """
    if asked.run_dir is None:
        check_fits(resolve(config, scenario))
    from mas.person.cast import Recast
    from mas.training.saved import open_run

    used = {role.peer for role in cast.roles.values()}
    algorithm = config.algorithm.model_copy(update={"team": "team"})
    peers = {name: peer for name, peer in config.peers.items() if name in used}
    setup = resolve(config.model_copy(update={"algorithm": algorithm, "peers": peers}), Recast(scenario, cast))
    if asked.is_sampled:
        check_sampling(setup)

    @asynccontextmanager
    async def opening() -> "AsyncIterator[TeamRuntime]":
        async with open_run(setup, asked.run_dir, _note, desk) as session:
            yield session.runtime

    return opening()


def _note(text: str) -> None:
    Console(stderr=True).print(Text(text, style="dim"), soft_wrap=True)
