"""The commands that play a team: a whole one here, or its agents and its play in processes that share a bus."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.bus.journal_tables import JOURNAL_NAME, journal_at
from mas.config.access import PLAYS
from mas.config.options import TraceOptions
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import (
    OVERRIDES_HELP,
    PLAYING,
    Sampled,
    check_named,
    check_sampling,
    check_used,
    configured,
    tell_loading,
)
from mas.runs.resolve import check_fits, resolve
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.session import Opening, TeamSession


STORE = "MAS_BUS_STORE"
Words = Annotated[list[str] | None, typer.Argument(metavar="RUN_DIR|OVERRIDES", help=OVERRIDES_HELP)]
BUS_HELP = "the bus that processes share, mqtt://USER@HOST:PORT/SPACE or mqtts://; password in MAS_BUS_PASSWORD"
_USER_HELP = "USER is TEAM%2FAGENT: in a URL, %2F stands for a slash that does not end the host"
_STORE_HELP = (
    "where payloads too long for the broker lie, file:///DIRECTORY or s3://BUCKET/PREFIX: the same for every process"
)
BusCa = Annotated[Path | None, typer.Option("--ca", help="certificates that vouch for a broker with mqtts://")]
BusStore = Annotated[str, typer.Option(help=f"{_STORE_HELP}; with --bus also from {STORE}")]
Trace = Annotated[Path | None, typer.Option(metavar="DIR", help="write spans to DIR/spans.jsonl, for `mas timeline`")]
TraceContent = Annotated[bool, typer.Option("--trace-content", help="with prompts and texts, private ones included")]


def run(
    words: Words = None,
    task: Annotated[int, typer.Option(min=0, help="number of the held-out task")] = 0,
    sampled: Sampled = False,
    bus: Annotated[str, typer.Option(help=f"{BUS_HELP}: the agents are processes of `mas agent` on it")] = "",
    ca: BusCa = None,
    store: BusStore = "",
    trace: Trace = None,
    trace_content: TraceContent = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="JOURNAL",
            help=f"write it down in this file or a directory's {JOURNAL_NAME}; after a kill the same command goes on",
        ),
    ] = None,
    trust: Trust = False,
) -> None:
    """Play one episode and print the conversation: of a trained run, or without RUN_DIR of an untrained team."""
    run_dir, setup = _played("run", words or [])
    console = Console()
    _check_bus(bus, ca=ca, store=store or None)
    setup.scenario.task("eval", task)  # refused before anything is loaded
    if sampled and not bus:  # on a bus the agents' processes sample, with their own engines
        check_sampling(setup)
    if bus:
        store = store or os.environ.get(STORE, "")
        _try_broker(bus, setup, ca, store or None)
        _teller(console)("the broker lets whoever plays in; reading how texts become tokens")
    else:
        tell_loading(console, f"playing held-out task {task} of {setup.scenario.name} with {_whom(run_dir)}", setup)
    from mas.bus.journal import Journal
    from mas.runtime.replay_log import ReplayLog
    from mas.runtime.team import drains_on_interrupt
    from mas.training.distributed import open_distributed
    from mas.training.saved import open_run
    from mas.training.show import show_episode, tell_what_was
    from mas.training.terminal import TerminalDesk

    async def play(log: ReplayLog | None) -> None:
        desk = TerminalDesk(console, log=log)
        opening: AbstractAsyncContextManager[TeamSession]
        if bus:
            opening = open_distributed(
                setup, bus, _teller(console), ca_file=ca, store=store or None, desk=desk, log=log
            )
        else:
            opening = open_run(setup, run_dir, _teller(console), desk, log=log)
        async with opening as session:
            held_out, temperature, seed = setup.scenario.task("eval", task), None if sampled else 0.0, setup.train.seed
            if log is not None:
                await tell_what_was(log, session.plan.spec.name, held_out, console)
            settings = {"run": None if run_dir is None else str(run_dir), "model.path": setup.model.path}
            with drains_on_interrupt(session.runtime):
                await show_episode(session, held_out, seed, console, temperature=temperature, settings=settings)

    with ExitStack() as stack:
        stack.enter_context(_traced(trace, shows_content=trace_content, process="run", span="run"))
        log = None if journal is None else ReplayLog(stack.enter_context(Journal.open(journal_at(journal))))
        asyncio.run(play(log))


def agent(
    name: Annotated[str, typer.Argument(metavar="AGENT", help="a member of the team; `mas graph` shows them")],
    words: Words = None,
    bus: Annotated[str, typer.Option(envvar="MAS_BUS_URL", help=f"{BUS_HELP}. {_USER_HELP}")] = "",
    ca: BusCa = None,
    store: Annotated[str, typer.Option(envvar=STORE, help=_STORE_HELP)] = "",
    trace: Trace = None,
    trace_content: TraceContent = False,
    trust: Trust = False,
) -> None:
    """Speak for one agent of a team on a bus that processes share, until Ctrl-C; `mas run --bus` plays the team.

    Told to end, it finishes the requests that have begun; a second Ctrl-C stops it at once.
    """
    if "=" in name:
        raise ConfigError(f"mas agent needs the agent's name first: mas agent AGENT {name}")
    run_dir, setup = _played("agent", words or [])
    if not bus:
        raise ConfigError("mas agent needs a bus: --bus mqtt://TEAM%2FAGENT@HOST:PORT/SPACE, or MAS_BUS_URL")
    from mas.runtime.processes import agent_principal, check_user, team_owns, try_connection

    team = setup.team
    principal = agent_principal(team, name)
    check_user(bus, principal, ca_file=ca)
    # before what takes long to load
    asyncio.run(
        try_connection(
            bus,
            ca_file=ca,
            store=store or None,
            principal=principal,
            limits=team.replicas.get(name),
            owns=team_owns(team),
        )
    )
    console = Console()
    note = _teller(console)
    note(f"the broker lets {principal} in; loading what it uses")
    from mas.training.distributed import serve_agent
    from mas.training.terminal import TerminalDesk

    desk = TerminalDesk(console)
    with _traced(trace, shows_content=trace_content, process=name):
        asyncio.run(serve_agent(name, setup, run_dir, bus, note, ca_file=ca, store=store or None, desk=desk))


def stop(
    bus: Annotated[str, typer.Option(envvar="MAS_BUS_URL", help=f"{BUS_HELP}; USER is who plays: coordinator")] = "",
    ca: BusCa = None,
    now: Annotated[bool, typer.Option("--now", help="do not let them finish requests that have begun")] = False,
) -> None:
    """End all processes of `mas agent` that are on a bus now; each finishes the requests that have begun first."""
    if not bus:
        raise ConfigError("mas stop needs a bus: --bus mqtt://coordinator@HOST:PORT/SPACE, or MAS_BUS_URL")
    from mas.bus.mqtt import MqttBus
    from mas.bus.mqtt.coordination import shut_down

    async def tell() -> None:
        async with MqttBus.connect(bus, ca_file=ca) as connection:
            await shut_down(connection, _teller(Console()), at_once=now)

    asyncio.run(tell())


def on_bus(
    setup: Setup, bus: str, ca: Path | None, store: str, wait_s: float | None, console: Console
) -> "Opening | None":
    """How training opens its team on a bus that processes share; None without one: in this process.

    Raises:
        ConfigError: options of a bus without one, a wrong URL, or a team that cannot be trained there. Otherwise as
        `try_connection`.
    """
    _check_bus(bus, ca=ca, store=store or None, wait=wait_s)
    if not bus:
        return None
    from mas.runtime.processes import check_player, try_connection
    from mas.training.over_bus import WAIT_S, over_bus

    check_player(bus, setup.team, ca_file=ca)
    wait_s = WAIT_S if wait_s is None else wait_s
    place = store or os.environ.get(STORE) or None
    opening = over_bus(setup, bus, note=_teller(console, "dim"), ca_file=ca, store=place, wait_s=wait_s)
    asyncio.run(try_connection(bus, ca_file=ca, store=place))  # before the base is loaded
    return opening


def _try_broker(bus: str, setup: Setup, ca: Path | None, store: str | None) -> None:
    """Check the user and connect once, before what takes long to load.

    Raises:
        As `check_player` and `try_connection`.
    """
    from mas.runtime.processes import check_player, try_connection

    check_player(bus, setup.team, ca_file=ca)
    asyncio.run(try_connection(bus, ca_file=ca, store=store))


def _check_bus(bus: str, **options: Path | str | float | None) -> None:
    """Refuse options of a bus where there is none."""
    for name, value in options.items():
        if value is not None and not bus:
            raise ConfigError(f"--{name} is for a bus, and --bus is not given")


def _teller(console: Console, style: str = "") -> Callable[[str], None]:
    """Prints what happens as it is, one line each however wide the terminal, so that a log can be searched."""

    def tell(text: str) -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    return tell


def _played(command: str, words: list[str]) -> tuple[Path | None, Setup]:
    """The run, if the first word is one, and what plays."""
    run_dir = local_run(words[0]) if words and "=" not in words[0] else None
    overrides = words if run_dir is None else words[1:]
    if run_dir is None:
        check_named("agent AGENT" if command == "agent" else command, overrides)
        _, setup = configured(overrides)
        check_fits(setup)
    else:
        setup = resolve(load_run_config(run_dir, overrides, uses=PLAYS))
    check_used(command, overrides, PLAYING)
    return run_dir, setup


def _whom(run_dir: Path | None) -> str:
    return "an untrained team" if run_dir is None else f"the team of {run_dir}"


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
