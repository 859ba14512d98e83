"""The command `mas broker`: from a team's name to a broker that serves it. Heavy modules are imported inside it."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.broker.files import BrokerFiles, write_broker
from mas.broker.options import BrokerOptions
from mas.broker.process import check_port, find_mosquitto, run_mosquitto
from mas.broker.rights import OPERATOR
from mas.core.team import COORDINATOR, TeamSpec
from mas.observe.trust_option import Trust
from mas.scenarios.team_lookup import named_team

_MAX_PACKET_BYTES = 268_435_455
"""The most that MQTT can say."""
_KINDS = {COORDINATOR: "plays the team", OPERATOR: "reads presence and counters"}


Team = Annotated[str, typer.Argument(metavar="TEAM", help="a team's YAML file, or SCENARIO or SCENARIO/TEAM")]
Directory = Annotated[Path, typer.Option("--dir", help="directory of its configuration and passwords")]
Host = Annotated[str, typer.Option(help="address to listen at; those of other machines need TLS")]
Port = Annotated[int | None, typer.Option(min=1, max=65535, help="default: 1883, with TLS 8883")]
Name = Annotated[str | None, typer.Option(help="by which clients reach it; default: --host, or this machine's name")]
Tls = Annotated[bool, typer.Option("--tls", help="TLS with a CA and a certificate made here, by openssl")]
Cert = Annotated[Path | None, typer.Option(help="TLS with this certificate (and its chain) instead")]
Key = Annotated[Path | None, typer.Option(help="its private key, not encrypted")]
Ca = Annotated[Path | None, typer.Option(help="its authority; default: those that clients trust anyway")]
Space = Annotated[str, typer.Option(help="second level of all topics, the same in all processes of the team")]
PacketBytes = Annotated[int, typer.Option(min=1024, max=_MAX_PACKET_BYTES, help="size of one message")]
Inflight = Annotated[int, typer.Option(min=1, max=65535, help="messages sent to one client and not acknowledged")]
Queued = Annotated[int, typer.Option(min=1, help="messages waiting for one client; more are lost")]
QueuedBytes = Annotated[int, typer.Option(min=1024, help="the same in bytes")]
Connections = Annotated[int, typer.Option(min=1, help="clients at the same time")]
MemoryBytes = Annotated[int, typer.Option(min=2**20, help="memory of the broker in all, retained messages included")]
Persistence = Annotated[bool, typer.Option("--persistence", help="keep sessions and presence on disk")]
WriteOnly = Annotated[bool, typer.Option("--write-only", help="write the files, start nothing")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="replace files that differ; passwords stay")]


def broker(
    team: Team,
    directory: Directory = Path("broker"),
    host: Host = "127.0.0.1",
    port: Port = None,
    name: Name = None,
    tls: Tls = False,
    cert: Cert = None,
    key: Key = None,
    ca: Ca = None,
    space: Space = "default",
    max_packet_bytes: PacketBytes = 8 * 2**20,
    max_inflight_messages: Inflight = 1024,
    max_queued_messages: Queued = 10_000,
    max_queued_bytes: QueuedBytes = 64 * 2**20,
    max_connections: Connections = 1024,
    max_memory_bytes: MemoryBytes = 512 * 2**20,
    persistence: Persistence = False,
    write_only: WriteOnly = False,
    overwrite: Overwrite = False,
    trust: Trust = False,
) -> None:
    """Write a mosquitto configuration for a team, with rights from its graph, and run it until Ctrl-C."""
    spec = named_team(team)
    from mas.graph.plan import compile_team
    from mas.roles import build_roles

    compile_team(spec, build_roles(spec))
    options = BrokerOptions(
        directory=directory,
        host=host,
        port=port,
        name=name,
        is_tls=tls,
        cert=cert,
        key=key,
        ca=ca,
        space=space,
        max_packet_bytes=max_packet_bytes,
        max_inflight_messages=max_inflight_messages,
        max_queued_messages=max_queued_messages,
        max_queued_bytes=max_queued_bytes,
        max_connections=max_connections,
        max_memory_bytes=max_memory_bytes,
        is_persistent=persistence,
    )
    raise typer.Exit(_open(spec, options, is_overwriting=overwrite, is_started=not write_only))


def _open(spec: TeamSpec, options: BrokerOptions, *, is_overwriting: bool, is_started: bool) -> int:
    """Write the files and run the broker, if that is wanted; the exit code."""
    console = Console()
    mosquitto = find_mosquitto() if is_started else ""
    if is_started:
        check_port(options)
    files = write_broker(spec, options, os.environ, is_overwriting=is_overwriting)
    if not is_started:
        start = f"Start it with: mosquitto -c {files.conf}"
        console.print(Text(f"{_summary(spec, options, files, 'Written for')}\n{start}"), soft_wrap=True)
        return 0
    summary = f"{_summary(spec, options, files, 'mosquitto serves')}\nCtrl-C ends it."
    return run_mosquitto(mosquitto, files, options, lambda: console.print(Text(summary), soft_wrap=True))


def _summary(spec: TeamSpec, options: BrokerOptions, files: BrokerFiles, verb: str) -> str:
    """Where it is, who may connect, and what they need for it."""
    lines = [
        f"{verb} team {spec.name!r} at {options.url()}, files in {options.directory}",
        "Each process needs the file of its own principal: where the broker is, its user name and its password.",
    ]
    width = max(len(principal) for principal in files.handouts)
    folder = options.directory / "passwords"
    for principal, path in files.handouts.items():
        lines.append(f"  {principal:{width}}  {folder / path.name}  ({_KINDS.get(principal, 'agent')})")
    if files.tls is not None and files.tls.ca is not None:
        lines.append(f"Clients verify the broker with {files.tls.ca}")
    return "\n".join(lines)
