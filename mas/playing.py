"""The commands that play a team: a whole one here, or its agents and its play in processes that share a bus."""

import asyncio
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mas.bus.record import JOURNAL_NAME, journal_at
from mas.config.load import load_run_config
from mas.config.options import Config
from mas.config.peers import check_peers
from mas.core.errors import ConfigError
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.overrides import OVERRIDES_HELP, PLAYING, Sampled, check_used, configured
from mas.scenarios import build_scenario

if TYPE_CHECKING:
    from mas.training.crew import Players

Words = Annotated[list[str] | None, typer.Argument(metavar="[RUN_DIR] [OVERRIDES]...", help=OVERRIDES_HELP)]
_BUS_HELP = "the bus that processes share, mqtt://USER@HOST:PORT/SPACE or mqtts://; password in MAS_BUS_PASSWORD"
BusCa = Annotated[Path | None, typer.Option("--ca", help="certificates that vouch for a broker with mqtts://")]


def run(
    words: Words = None,
    task: Annotated[int, typer.Option(min=0, help="number of the held-out task")] = 0,
    sampled: Sampled = False,
    bus: Annotated[str, typer.Option(help=f"{_BUS_HELP}: the agents are processes of `mas agent` on it")] = "",
    ca: BusCa = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="JOURNAL",
            help=f"write it down in this file or a directory's {JOURNAL_NAME}; after a kill the same command goes on",
        ),
    ] = None,
) -> None:
    """Play one episode and print the conversation: of a trained run, or without RUN_DIR of an untrained team."""
    run_dir, config, scenario = _played("run", words or [])
    if ca is not None and not bus:
        raise ConfigError("--ca says whom to trust as --bus, which is not given")
    from mas.bus.journal import Journal
    from mas.runtime.interrupt import drains_on_interrupt
    from mas.runtime.runlog import RunLog
    from mas.training.players import open_players
    from mas.training.show import show_episode, tell_what_was
    from mas.training.spread import open_spread
    from mas.training.terminal import TerminalDesk

    console = Console()

    async def play(log: RunLog | None) -> None:
        desk = TerminalDesk(console, log=log)
        opening: AbstractAsyncContextManager[Players]
        if bus:
            opening = open_spread(config, scenario, bus, ca_file=ca, desk=desk, log=log)
        else:
            opening = open_players(config, scenario, run_dir, console.print, desk, log=log)
        async with opening as players:
            held_out, temperature, seed = scenario.task("eval", task), None if sampled else 0.0, config.train.seed
            if log is not None:
                await tell_what_was(log, players.plan.spec.name, held_out, console)
            settings = {"run": None if run_dir is None else str(run_dir), "model.path": config.model.path}
            with drains_on_interrupt(players.runtime):
                await show_episode(players, held_out, seed, console, temperature=temperature, settings=settings)

    with ExitStack() as stack:
        log = None if journal is None else RunLog(stack.enter_context(Journal.open(journal_at(journal))))
        asyncio.run(play(log))


def agent(
    name: Annotated[str, typer.Argument(metavar="AGENT", help="a member of the team; `mas graph` shows them")],
    words: Words = None,
    bus: Annotated[str, typer.Option(envvar="MAS_BUS_URL", help=_BUS_HELP)] = "",
    ca: BusCa = None,
) -> None:
    """Speak for one agent of a team on a bus that processes share, until Ctrl-C; `mas run --bus` plays the team."""
    run_dir, config, scenario = _played("agent", words or [])
    if not bus:
        raise ConfigError("mas agent needs a bus: --bus mqtt://TEAM%2FAGENT@HOST:PORT/SPACE, or MAS_BUS_URL")
    from mas.training.spread import serve_agent
    from mas.training.terminal import TerminalDesk

    console = Console()
    asyncio.run(
        serve_agent(name, config, scenario, run_dir, bus, console.print, ca_file=ca, desk=TerminalDesk(console))
    )


def _played(command: str, words: list[str]) -> tuple[Path | None, Config, Scenario]:
    """The run, if the first word is one, and the configured team that plays."""
    run_dir = Path(words[0]) if words and "=" not in words[0] else None
    overrides = words if run_dir is None else words[1:]
    if run_dir is None:
        config, scenario = configured(overrides)
    else:
        config = load_run_config(run_dir, overrides)
        scenario = build_scenario(config.scenario)
    check_used(command, overrides, PLAYING)
    check_peers(config, find_team(scenario, config.algorithm.team))
    return run_dir, config, scenario
