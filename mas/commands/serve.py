"""The commands `mas serve` and `mas mcp`: a run's team for clients."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas.bus.journal_tables import JOURNAL_NAME, journal_at
from mas.config.access import PLAYS
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError
from mas.core.remote_agent import check_a2a
from mas.observe.listener_options import AllowHost, AllowOrigin, Host, Port
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import PLAYING, Overrides, PlayedRun, check_used, tell_loading
from mas.runs.resolve import resolve
from mas.tools.mcp_client import check_sdk


def serve(
    run_dir: PlayedRun,
    overrides: Overrides = None,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    max_waiting: Annotated[int, typer.Option(min=0, help="requests that may wait; more get status 429")] = 1024,
    allow_host: AllowHost = None,
    allow_origin: AllowOrigin = None,
    keys: Annotated[
        Path | None, typer.Option(help="a YAML file of clients with keys and quotas of their own; see docs/endpoint.md")
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0.001, help="how long a request may take; then it gets status 504")
    ] = None,
    show_messages: Annotated[
        bool, typer.Option(help="tell clients that ask for it what the team's members say to each other")
    ] = False,
    journal: Annotated[
        Path | None,
        typer.Option(
            metavar="JOURNAL",
            help=f"keep requests to the team in this file or a directory's {JOURNAL_NAME}; after a kill they go on",
        ),
    ] = None,
    mcp: Annotated[bool, typer.Option("--mcp", help="also serve the team as a tool of MCP clients, at /mcp")] = False,
    a2a: Annotated[bool, typer.Option("--a2a", help="also serve the team as an agent of A2A clients, at /a2a")] = False,
    trust: Trust = False,
) -> None:
    """Serve a run's base, adapters and team over an OpenAI-compatible endpoint, until Ctrl-C."""
    from mas.endpoint.address import bind, known_hosts, known_origins
    from mas.endpoint.client_keys import Entrance, read_keys

    run_dir = local_run(run_dir)
    config = load_run_config(run_dir, overrides or [], uses=PLAYS)
    check_used("serve", overrides or [], tuple(name for name in PLAYING if name != "train.seed"))
    check_protocols(mcp=mcp, a2a=a2a, journal=journal)
    key, hosts = os.environ.get("MAS_API_KEY") or None, known_hosts(host, allow_host or [])
    clients, origins = () if keys is None else read_keys(keys), known_origins(allow_origin or [])
    with bind(host, port, has_key=key is not None or bool(clients)) as listener:
        place = None if journal is None else journal_at(journal)
        setup, out = resolve(config), Console()
        tell_loading(out, f"serving {run_dir}", setup)
        from mas.endpoint.command import serve_run

        who = Entrance(key=key, clients=clients, hosts=hosts, origins=origins)
        serve_run(run_dir, setup, listener, out, who, max_waiting, max_seconds, place, show_messages, mcp, a2a)


def check_protocols(*, mcp: bool = False, a2a: bool = False, journal: Path | None = None) -> None:
    """Refuse to serve MCP or A2A without the SDK, and beside a journal, whose requests have keys.

    Raises:
        MissingPackage: an SDK is not installed. ConfigError: there is a journal.
    """
    for option, is_served, what in (("--mcp", mcp, "calls of MCP"), ("--a2a", a2a, "tasks of A2A")):
        if is_served and journal is not None:
            raise ConfigError(f"{option} and --journal do not go together: {what} clients are not kept. Leave one out")
    if mcp:
        check_sdk("serving MCP needs")
    if a2a:
        check_a2a("serving A2A needs")


def mcp(run_dir: PlayedRun, overrides: Overrides = None, trust: Trust = False) -> None:
    """Serve a run's team as the tool `ask_team` of an MCP client, over standard input and output."""
    run_dir = local_run(run_dir)
    config = load_run_config(run_dir, overrides or [], uses=PLAYS)
    check_used("mcp", overrides or [], tuple(name for name in PLAYING if name != "train.seed"))
    check_protocols(mcp=True)
    from mas.endpoint.mcp_server import claim_output

    setup, output, console = resolve(config), claim_output(), Console(stderr=True)
    from mas.endpoint.command import serve_tool

    serve_tool(run_dir, setup, output, console)
