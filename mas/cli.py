"""The command `mas`: the only place that puts everything together.

Heavy modules are imported inside the commands that need them, so that help and configuration errors come at once.
"""

import asyncio
import os
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

from mas.api.train import train_setup
from mas.broker.command import broker
from mas.bus.command import deadletters
from mas.bus.journal_tables import JOURNAL_NAME, journal_at
from mas.commands import ASKED, add_bench, algorithms, demo, doctor, mcp, tools
from mas.config.access import PLAYS
from mas.config.options import SMOLLM2
from mas.config.stored_run import load_run_config
from mas.config.trust import trusting
from mas.core.errors import ConfigError, Halted, MasError, RunDirectoryError
from mas.core.printable import printable
from mas.core.version import VERSION
from mas.gateway.command import gateway
from mas.league.command import league
from mas.observe.command import timeline
from mas.observe.trust_option import Trust
from mas.person.command import play
from mas.runs.cluster import cluster
from mas.runs.evaluate import evaluate
from mas.runs.hub_source import local_run
from mas.runs.overrides import (
    PLAYING,
    FromStep,
    Overrides,
    PlayedRun,
    RunDir,
    check_used,
    configured,
    exported,
    tell_loading,
    tell_stopped,
)
from mas.runs.play import BUS_HELP, BusCa, BusStore, agent, on_bus, run, stop
from mas.runs.resolve import resolve, with_tasks
from mas.sandbox.command import sandbox
from mas.scenarios import SCENARIOS
from mas.scenarios.command import scenarios
from mas.scenarios.team_lookup import named_team
from mas.study.command import curves, study
from mas.tinker.command import tinker

app = typer.Typer(
    name="mas",
    help="Teams of LLM agents that can be trained together.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
add_bench(app)
app.add_typer(league)
app.add_typer(cluster)
app.command()(deadletters)
app.command()(broker)
app.command()(run)
app.command("eval")(evaluate)
app.command()(doctor)
app.command()(agent)
app.command()(timeline)
app.command()(curves)
app.command()(demo)
app.command()(study)
app.command()(play)
app.command()(stop)
app.command()(scenarios)
app.command()(algorithms)
app.command()(sandbox)
app.command()(mcp)
app.command()(gateway)
app.command()(tinker)
app.command()(tools)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mas {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Teams of LLM agents that can be trained together."""


def main() -> None:
    """Run the command; an error made on purpose is one message and exit code 2, a stop 130, never a traceback."""
    try:
        with trusting(everything=False):  # `--trust` ends with the command
            app()
    except Halted as stopped:
        Console(stderr=True).print(Text(f"stopped: {stopped}"), soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:  # whoever read it has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except MasError as error:
        Console(stderr=True).print(Text(printable(f"error: {error}"), style="red"), soft_wrap=True)
        sys.exit(2)


@app.command()
def train(
    overrides: Overrides = None,
    bus: Annotated[str, typer.Option(help=f"{BUS_HELP}: the agents are processes of `mas agent` on it")] = "",
    ca: BusCa = None,
    store: BusStore = "",
    wait: Annotated[
        float | None, typer.Option(min=0, help="seconds that an agent's process may be gone, with --bus; default: 300")
    ] = None,
    from_step: FromStep = None,
    trust: Trust = False,
) -> None:
    """Train a team. The same command again resumes a run that was stopped or killed."""
    if ASKED in (overrides or []):
        algorithms()
        return
    config, setup = configured(overrides or [])
    keys = {override.lstrip("+").partition("=")[0] for override in overrides or []}
    if not keys & {"scenario", "scenario.name"}:
        raise ConfigError(f"say what is trained: mas train scenario=NAME, where NAME is one of {', '.join(SCENARIOS)}")
    console = Console()
    try:
        train_setup(
            config,
            setup,
            console,
            from_step=from_step,
            open_bus=partial(on_bus, setup, bus, ca, store, wait, console),
        )
    except KeyboardInterrupt:
        options = {"--bus": bus or None, "--ca": ca, "--store": store or None, "--wait": wait}
        given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        tell_stopped(config.run_dir, ["mas", "train", *(overrides or []), *given])
        raise typer.Exit(130) from None
    console.print(Text(f"next: mas eval {config.run_dir}   mas report {config.run_dir}", style="dim"), soft_wrap=True)


@app.command()
def serve(
    run_dir: PlayedRun,
    overrides: Overrides = None,
    host: Annotated[
        str, typer.Option(help="address to listen at; other machines need the key MAS_API_KEY")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")] = 8000,
    max_waiting: Annotated[int, typer.Option(min=0, help="requests that may wait; more get status 429")] = 1024,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="a name that clients may ask it by, beside localhost and its address (may be repeated)"),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(help="an origin of web pages that may ask, such as https://app.example (may be repeated)"),
    ] = None,
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
    trust: Trust = False,
) -> None:
    """Serve a run's base, adapters and team over an OpenAI-compatible endpoint, until Ctrl-C."""
    from mas.endpoint.address import bind, known_hosts, known_origins
    from mas.endpoint.client_keys import read_keys
    from mas.endpoint.mcp_server import check_mcp

    run_dir = local_run(run_dir)
    config = load_run_config(run_dir, overrides or [], uses=PLAYS)
    check_used("serve", overrides or [], tuple(name for name in PLAYING if name != "train.seed"))
    if mcp:
        check_mcp(journal)
    key, hosts = os.environ.get("MAS_API_KEY") or None, known_hosts(host, allow_host or [])
    clients, origins = () if keys is None else read_keys(keys), known_origins(allow_origin or [])
    with bind(host, port, has_key=key is not None or bool(clients)) as listener:
        place = None if journal is None else journal_at(journal)
        setup, out = resolve(config), Console()
        tell_loading(out, f"serving {run_dir}", setup)
        from mas.endpoint.command import Entrance, serve_run

        who = Entrance(key=key, clients=clients, hosts=hosts, origins=origins)
        serve_run(run_dir, setup, listener, out, who, max_waiting, max_seconds, place, show_messages, mcp)


@app.command()
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
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(svg(plan), encoding="utf-8")
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}. Choose another --out.") from error
    typer.echo(mermaid(plan), nl=False)
    typer.echo(f"{path}", err=True)


@app.command()
def base(overrides: Overrides = None) -> None:
    """Make a base model and keep it in the cache: the tiny base of scenario=NAME (of all without one), or smollm2."""
    given = overrides or []
    began = time.perf_counter()
    if given == [SMOLLM2]:
        from mas.serving.model_sources import smollm2

        path = smollm2(lambda text: typer.echo(text, err=True))
        typer.echo(f"{SMOLLM2}\t{path}\t{time.perf_counter() - began:.1f} s")
        return
    names = [name for name, entry in SCENARIOS.items() if entry.is_demonstrated]
    is_chosen = any(word.lstrip("+").partition("=")[0].partition(".")[0] == "scenario" for word in given)
    wanted = [configured([*given, *more]) for more in ([[]] if is_chosen else [[f"scenario={n}"] for n in names])]
    check_used("base", given, ("scenario", "model", "engine"))
    from mas.training.base import tiny_base

    for _, setup in wanted:
        began = time.perf_counter()
        path = tiny_base(setup.scenario, setup.model.tiny)
        typer.echo(f"{setup.scenario.name}\t{path}\t{time.perf_counter() - began:.1f} s")


@app.command()
def report(run_dir: RunDir, trust: Trust = False) -> None:
    """Write RUN_DIR/report.html: curves, conversations before and after, the team, and how to do it again."""
    config = load_run_config(run_dir, uses=["code", "file"])
    from mas.observe.report import write_report
    from mas.runs.report import build_report

    path = run_dir / "report.html"
    write_report(path, build_report(run_dir, config, resolve(config).plan))
    typer.echo(str(path))


@app.command()
def export(
    run_dir: PlayedRun,
    overrides: Overrides = None,
    out: Annotated[
        Path | None,
        typer.Option(help="a new directory for ROLE.sft.jsonl and ROLE.dpo.jsonl, or with --card for the team; export"),
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=1, help="training tasks to sample; default: 16")] = None,
    algorithm: Annotated[str, typer.Option(help="samples and labels in place of the run's own, such as dpo")] = "",
    card: Annotated[
        bool, typer.Option("--card", help="write the team instead: adapters, team file, model card; upload nothing")
    ] = False,
    hub: Annotated[
        str, typer.Option(metavar="ORG/NAME", help="upload what --card writes to this repository of a model hub")
    ] = "",
    public: Annotated[
        bool, typer.Option("--public", help="with --hub: everybody may read the repository; else it is private")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write completions to imitate and pairs to prefer, role by role, from trees of a trained team; or publish it.

    With --card or --hub the team itself is written, for others to run: `mas run hub:ORG/NAME`. The hub's address is
    HF_ENDPOINT; the token is HF_TOKEN, or that of `hf auth login`.
    """
    run_dir = local_run(run_dir)
    if card or hub:
        given = {"--tasks": tasks, "--algorithm": algorithm or None, "--out": out if hub else None}
        _check_team_export(given, card=card, hub=hub, public=public)
        from mas.runs.publish import export_team, publish_team

        if card:
            export_team(run_dir, out or _EXPORT, overrides or [])
            typer.echo(str(out or _EXPORT))
        else:
            typer.echo(publish_team(run_dir, hub, overrides=overrides or [], is_public=public))
        return
    if public:
        raise ConfigError("--public says who may read what --hub uploads: add --hub ORG/NAME")
    config = exported(run_dir, overrides or [], algorithm)
    check_used("export", overrides or [], (*PLAYING, "algorithm.sampler", "algorithm.options", "algorithm.reward"))
    from mas.training.check_setup import check_trainable
    from mas.training.export import check_export, export_run

    setup, count, folder = resolve(config), tasks or 16, out or _EXPORT
    check_trainable(setup)
    check_export(setup, count, folder)
    for role, rows in asyncio.run(export_run(setup, run_dir, count, folder, Console().print)).items():
        typer.echo(f"{role}\t{rows.positives} to imitate\t{rows.pairs} pairs")


_EXPORT = Path("export")


def _check_team_export(given: Mapping[str, object], *, card: bool, hub: str, public: bool) -> None:
    """Refuse options that have no effect on the export of a team."""
    if card and hub:
        raise ConfigError("--card writes the team into --out and uploads nothing, --hub uploads it: choose one")
    if public and not hub:
        raise ConfigError("--public says who may read what --hub uploads: add --hub ORG/NAME")
    if unused := [name for name, value in given.items() if value is not None]:
        raise ConfigError(f"{unused[0]} has no effect on `mas export {'--hub' if hub else '--card'}`: leave it out")


@app.command("config")
def show_config(overrides: Overrides = None) -> None:
    """Print the whole configuration that the overrides make, and check it."""
    config, setup = configured(overrides or [])
    with_tasks(config, setup)
    typer.echo(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True), nl=False)


_PANELS = {
    "Look": ("scenarios", "algorithms", "graph", "tools", "config", "doctor", "play"),
    "Train and measure": (
        "train",
        "gateway",
        "tinker",
        "eval",
        "run",
        "report",
        "curves",
        "timeline",
        "export",
        "base",
    ),
    "Compare": ("demo", "study", "league", "bench"),
    "Serve and spread": ("serve", "mcp", "agent", "stop", "broker", "deadletters", "sandbox", "cluster"),
}
"""Commands of the help, in the order of use."""


def _arrange() -> None:
    """Put every command into its panel, in order. A command in none stands last, under `Commands`."""
    places = {name: (panel, number) for panel, names in _PANELS.items() for number, name in enumerate(names)}
    order = list(_PANELS)

    def name_of(info: Any) -> str:
        return str(info.name or (info.callback.__name__ if info.callback else info.typer_instance.info.name))

    def place_of(info: Any) -> tuple[int, int]:
        panel, number = places.get(name_of(info), ("", 0))
        return (order.index(panel) if panel else len(order), number)

    for infos in (app.registered_commands, app.registered_groups):
        infos.sort(key=place_of)
        for info in infos:
            info.rich_help_panel = places.get(name_of(info), ("Commands", 0))[0]


_arrange()
