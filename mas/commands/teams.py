"""The commands `mas graph` and `mas tools`: a team's file, checked and drawn, and what its servers of tools offer."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer
import yaml

from mas.core.errors import ConfigError
from mas.graph.load import load_team
from mas.observe.files import write_text_atomic, writing
from mas.observe.trust_option import Trust
from mas.scenarios.team_lookup import named_team
from mas.tools.recorded import offered_tools


def graph(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="a team's YAML file, or SCENARIO or SCENARIO/TEAM")],
    out: Annotated[Path, typer.Option(help="directory for the SVG drawing")] = Path(),
    trust: Trust = False,
) -> None:
    """Check a team's graph and draw it: Mermaid text here, an SVG file in a directory."""
    spec = named_team(team)
    from mas.graph.draw import mermaid, svg
    from mas.graph.plan import compile_team
    from mas.roles import build_roles

    plan = compile_team(spec, build_roles(spec))
    path = out / f"{spec.name}.svg"
    with writing(path, ". Choose another --out."):
        out.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, svg(plan))
    typer.echo(mermaid(plan), nl=False)
    typer.echo(f"{path}", err=True)


def tools(
    team: Annotated[Path, typer.Argument(metavar="TEAM", help="a team's YAML file; its servers are started")],
) -> None:
    """List what a team's servers of tools offer, as lines for `tools` of a role."""
    servers = load_team(team).tools
    if not servers:
        raise ConfigError(f"{team} names no servers under 'tools': add one, such as 'files: {{command: PROGRAM}}'")
    offered = asyncio.run(offered_tools(servers))
    typer.echo(yaml.safe_dump(offered, sort_keys=False, allow_unicode=True, width=10_000), nl=False)
