"""`mas openenv`: a scenario as an OpenEnv environment, until the signal that ends it."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.config.checks import is_bridged
from mas.config.load import load_config
from mas.config.plain_values import literal
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.core.scenario import Finite, Scenario, Split
from mas.core.seeds import derive_seed
from mas.endpoint.address import bind, known_hosts, known_origins
from mas.endpoint.client_keys import Entrance
from mas.endpoint.server import on_signal
from mas.league.games import STYLE, WORDS, LeagueWorld, full_options, open_world
from mas.observe.listener_options import AllowHost, AllowOrigin, Host, Port
from mas.observe.trust_option import Trust
from mas.openenv.game import OfferedWorld
from mas.person.seats import view_of
from mas.runs.overrides import OVERRIDES_HELP, check_used
from mas.runs.resolve import configured_scenario
from mas.scenarios import find_scenario
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.catalogue import summary

EXTRA = "openenv"


def openenv(
    name: Annotated[str, typer.Argument(metavar="SCENARIO", help="a scenario, or a game of a bridge, LIBRARY:GAME")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="OVERRIDES", help=OVERRIDES_HELP)] = None,
    others: Annotated[
        str | None,
        typer.Option(
            metavar="PLAYER", help="who plays the other seats: random, run:RUN_DIR[@STEP], openai:MODEL@URL, ..."
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    sessions: Annotated[int, typer.Option(min=1, max=4096, help="sessions at the same time")] = 64,
    turn: Annotated[
        float, typer.Option(min=0.1, metavar="SECONDS", help="in which another session of a match must move")
    ] = 50.0,
    idle: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="a session ends after so long without a message")
    ] = 600.0,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    trust: Trust = False,
) -> None:
    """Serve a scenario as an OpenEnv environment, a session for each seat, until Ctrl-C."""
    load_package("websockets.asyncio.server", EXTRA)
    from mas.openenv.server import OpenEnvLimits, openenv_server

    offered = offered_world(name, overrides or [])
    seats = offered.world.open().spec.seats
    if others is not None and len(seats) == 1:
        raise ConfigError(f"--others {others}: {name} has one seat ({seats[0]}); leave it out")
    key, console = os.environ.get("MAS_API_KEY") or None, Console()
    entrance = Entrance(key=key, hosts=known_hosts(host, allow_host or []), origins=known_origins(allow_origin or []))
    limits = OpenEnvLimits(sessions=sessions, turn_s=turn, idle_s=idle)

    async def run(listener: socket.socket) -> None:
        async with AsyncExitStack() as stack:
            served, stopped = offered, on_signal()
            if others is not None:
                from mas.league.players import open_players

                note = partial(Console(stderr=True).print, style="dim", highlight=False)
                players = await stack.enter_async_context(open_players({"others": others}, offered.world, note))
                served = replace(offered, others=players["others"])
            server = openenv_server(served, listener, entrance=entrance, limits=limits)
            address = await stack.enter_async_context(server)
            console.print(Text(_greeting(name, seats, address)), soft_wrap=True)
            await stopped.wait()
            console.print("closing", style="dim")

    with bind(host, port, has_key=key is not None) as listener:
        asyncio.run(run(listener))


def _greeting(name: str, seats: Sequence[str], address: str) -> str:
    """Where it is, and how clients reach it."""
    lines = [
        f"{name} as an OpenEnv environment at {address}, seats: {', '.join(seats)}",
        f'  GenericEnvClient(base_url="{address}")',
        f'  mas train scenario=bridge scenario.options.id="openenv:{address}" scenario.options.style=words',
        "Ctrl-C ends it.",
    ]
    return printable("\n".join(lines))


def offered_world(name: str, words: list[str]) -> OfferedWorld:
    """A scenario, in words where it has styles, or a game of a bridge.

    Raises:
        ConfigError: no such scenario, game or option, or a seat sees nothing.
    """
    if is_bridged(name):
        if words:
            raise ConfigError(f"{words[0]!r} has no effect on a game of another library")
        world = open_world(name)
        return OfferedWorld(world=world, task=partial(_bridged_task, name), about=name)
    check_used("openenv", words, ("scenario.options",))
    style = f"scenario.options.{STYLE}"
    has_style = STYLE in find_scenario(name).options.model_fields
    if has_style and not any(word.lstrip("+").partition("=")[0] == style for word in words):
        words = [f"{style}={WORDS}", *words]
    config = load_config([f"scenario.name={literal(name)}", *words])
    scenario = configured_scenario(config)
    environment = scenario.environment()
    for seat in environment.spec.seats:
        view_of(environment, seat)
    world = LeagueWorld(name, scenario.environment, full_options(config.scenario))
    return OfferedWorld(world=world, task=_tasks(scenario), about=summary(scenario))


def _bridged_task(name: str, split: Split, number: int) -> Task:
    return Task(id=f"{split}-{number}", seed=derive_seed("openenv", name, split, number), split=split)


def _tasks(scenario: Scenario) -> Callable[[Split, int], Task]:
    """Tasks by number; of a scenario with so many tasks and no more, numbers begin again behind the last."""

    def task(split: Split, number: int) -> Task:
        return scenario.task(split, number % scenario.size(split) if isinstance(scenario, Finite) else number)

    return task
