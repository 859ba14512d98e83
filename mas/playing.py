"""The commands that play a team: a whole one here, or its agents and its play in processes that share a bus."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from mas.config.load import load_run_config
from mas.config.options import Config, TraceOptions
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
_USER_HELP = "USER is TEAM%2FAGENT: in a URL, %2F stands for a slash that does not end the host"
BusCa = Annotated[Path | None, typer.Option("--ca", help="certificates that vouch for a broker with mqtts://")]
Trace = Annotated[Path | None, typer.Option(metavar="DIR", help="write spans to DIR/spans.jsonl, for `mas timeline`")]
TraceContent = Annotated[bool, typer.Option("--trace-content", help="with prompts and texts, private ones included")]


def run(
    words: Words = None,
    task: Annotated[int, typer.Option(min=0, help="number of the held-out task")] = 0,
    sampled: Sampled = False,
    bus: Annotated[str, typer.Option(help=f"{_BUS_HELP}: the agents are processes of `mas agent` on it")] = "",
    ca: BusCa = None,
    trace: Trace = None,
    trace_content: TraceContent = False,
) -> None:
    """Play one episode and print the conversation: of a trained run, or without RUN_DIR of an untrained team."""
    run_dir, config, scenario = _played("run", words or [])
    if ca is not None and not bus:
        raise ConfigError("--ca says whom to trust as --bus, which is not given")
    if bus:
        from mas.runtime.joining import try_connection

        asyncio.run(try_connection(bus, ca_file=ca))  # before what takes long to load
    from mas.runtime.interrupt import drains_on_interrupt
    from mas.training.players import open_players
    from mas.training.show import show_episode
    from mas.training.spread import open_spread
    from mas.training.terminal import TerminalDesk

    console = Console()

    async def play() -> None:
        desk = TerminalDesk(console)
        opening: AbstractAsyncContextManager[Players]
        if bus:
            opening = open_spread(config, scenario, bus, console.print, ca_file=ca, desk=desk)
        else:
            opening = open_players(config, scenario, run_dir, console.print, desk)
        async with opening as players:
            temperature = None if sampled else 0.0
            seed = config.train.seed
            with drains_on_interrupt(players.runtime):
                await show_episode(players, scenario.task("eval", task), seed, console, temperature=temperature)

    with _traced(trace, shows_content=trace_content, process="run", span="run"):
        asyncio.run(play())


def agent(
    name: Annotated[str, typer.Argument(metavar="AGENT", help="a member of the team; `mas graph` shows them")],
    words: Words = None,
    bus: Annotated[str, typer.Option(envvar="MAS_BUS_URL", help=f"{_BUS_HELP}. {_USER_HELP}")] = "",
    ca: BusCa = None,
    trace: Trace = None,
    trace_content: TraceContent = False,
) -> None:
    """Speak for one agent of a team on a bus that processes share, until Ctrl-C; `mas run --bus` plays the team.

    Told to end, it finishes what it has in hand; a second Ctrl-C stops it at once.
    """
    run_dir, config, scenario = _played("agent", words or [])
    if not bus:
        raise ConfigError("mas agent needs a bus: --bus mqtt://TEAM%2FAGENT@HOST:PORT/SPACE, or MAS_BUS_URL")
    from mas.runtime.joining import agent_principal, check_user, try_connection

    team = find_team(scenario, config.algorithm.team)
    principal = agent_principal(team, name)
    check_user(bus, principal, ca_file=ca)
    # before what takes long to load
    asyncio.run(try_connection(bus, ca_file=ca, principal=principal, limits=team.replicas.get(name)))
    from mas.training.spread import serve_agent
    from mas.training.terminal import TerminalDesk

    console = Console()
    desk = TerminalDesk(console)
    with _traced(trace, shows_content=trace_content, process=name):
        asyncio.run(serve_agent(name, config, scenario, run_dir, bus, console.print, ca_file=ca, desk=desk))


def stop(
    bus: Annotated[str, typer.Option(envvar="MAS_BUS_URL", help=f"{_BUS_HELP}; USER is who plays: coordinator")] = "",
    ca: BusCa = None,
    now: Annotated[bool, typer.Option("--now", help="do not let them finish what they have in hand")] = False,
) -> None:
    """End all processes of `mas agent` that are on a bus now; each finishes what it has in hand first."""
    if not bus:
        raise ConfigError("mas stop needs a bus: --bus mqtt://coordinator@HOST:PORT/SPACE, or MAS_BUS_URL")
    from mas.bus.mqtt import MqttBus
    from mas.bus.mqtt_orders import dismiss

    async def tell() -> None:
        async with MqttBus.connect(bus, ca_file=ca) as connection:
            await dismiss(connection, Console().print, at_once=now)

    asyncio.run(tell())


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


@contextmanager
def _traced(directory: Path | None, *, shows_content: bool, process: str, span: str | None = None) -> Iterator[None]:
    """Trace what the block does, where a directory says so. `span`: a name for the whole of it.

    Raises:
        ConfigError: content is wanted of no trace; otherwise as `open_tracing`.
    """
    if directory is None:
        if shows_content:
            raise ConfigError("--trace-content says what is written to --trace DIR, which is not given")
        yield
        return
    from mas.observe.tracing import open_tracing

    tracing = open_tracing(directory, process=process, most=TraceOptions().spans, shows_content=shows_content)
    with tracing as tracer, ExitStack() as stack:
        if span is not None:
            stack.enter_context(tracer.span(span))
        yield
