"""The commands `mas algorithms`, `mas doctor`, `mas demo`, `mas tools`, `mas mcp` and `mas bench`.

Heavy modules are imported inside them.
"""

import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.registry import find_algorithm, installed
from mas.api.train import train_setup
from mas.config.access import PLAYS
from mas.config.load import instead_of, leaves, load_config, presets
from mas.config.stored_run import load_run_config
from mas.config.study_results import STUDY_RESULTS
from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.printable import printable
from mas.core.user_code import is_code
from mas.graph.load import load_team
from mas.observe.report_records import Conversation, ConversationPair
from mas.observe.trust_option import Trust
from mas.runs.hub_source import local_run
from mas.runs.overrides import PLAYING, Overrides, PlayedRun, check_used, configured
from mas.runs.resolve import resolve, words_note
from mas.study.command import tiny_demo
from mas.tools.recorded import offered_tools

ASKED = "algorithm=?"


def algorithms(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="one algorithm; default: all")] = "",
) -> None:
    """List the algorithms, or say all about one: its paper, its parts, what it does otherwise."""
    console = Console()
    is_own = is_code(name) or name in installed()
    if name and name not in presets("algorithm") and not is_own:
        raise ConfigError(f"no algorithm {name!r}. {instead_of(name, installed())}")
    if not name:
        console.print(_algorithm_table())
        console.print(
            Text("one of them in full: mas algorithms NAME   to train: mas train algorithm=NAME", style="dim")
        )
        return
    own = find_algorithm(name)
    recipe = own.recipe
    where = f", arXiv {recipe.paper}" if recipe.paper else ""
    lines = [f"{recipe.title}{where}", recipe.does]
    if recipe.differs:
        lines.append(f"Differs: {recipe.differs}.")
    if recipe.needs:
        lines.append(f"Needs: a scenario with {recipe.needs}.")
    lines += ["Sets:", *(f"  {part}" for part in parts_of(name))]
    lines += _own_part_lines(own)
    lines.append(f"Run: {command_of(name, recipe)}")
    lines.append(f"Status: {status_of(name)}; docs/algorithms/{name}.md" if not is_own else "Status: not of mas")
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def command_of(name: str, recipe: Recipe) -> str:
    """How to train with it where its roles are found."""
    scenario = f"scenario={recipe.scenario} " if recipe.scenario else ""
    return f"mas train {scenario}algorithm={name} {recipe.beside}".rstrip()


def status_of(name: str) -> str:
    """Its result in the fair comparison; without one it runs and its mechanism is tested, and no more."""
    return str(STUDY_RESULTS[name]) if name in STUDY_RESULTS else "tested"


def parts_of(name: str) -> list[str]:
    """What a preset sets, as `key=value`; the rest is the scenario's preset and the defaults."""
    algorithm = find_algorithm(name)
    options = {f"scenario.options.{key}": value for key, value in algorithm.recipe.options.items()}
    found = options | {f"algorithm.{key}": value for key, value in leaves(dict(algorithm.parts))}
    return [f"{key}={value}" for key, value in found.items()] or ["algorithm.* (nothing but defaults)"]


def _own_part_lines(algorithm: Algorithm[Any]) -> list[str]:
    """Its own functions and options, with their defaults."""
    functions = {name: getattr(algorithm, name) for name in ("advantages", "loss", "sampler", "update")}
    names = [name for name, function in functions.items() if function is not None]
    options = [
        f"  algorithm.options.{key}"
        + ("" if field.is_required() else f"={field.get_default(call_default_factory=True)}")
        for key, field in algorithm.options.model_fields.items()
    ]
    lines = [f"Functions of its own: {', '.join(names)}"] if names else []
    return lines + (["Options of its own:", *options, *_option_lines(algorithm.options)] if options else [])


def _option_lines(options: type[Options]) -> list[str]:
    """What options mean, as their classes say."""
    classes = [one for one in reversed(options.__mro__) if issubclass(one, Options) and one is not Options]
    return [" ".join(("  " + (one.__doc__ or "")).split()) for one in classes if one.__doc__]


def _algorithm_table() -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("algorithm", "arXiv", "what it does", "made for", "fair comparison, greedy success"):
        table.add_column(column, overflow="fold")
    for name in presets("algorithm"):
        recipe = find_algorithm(name).recipe
        made_for = " · ".join(filter(None, (recipe.scenario, recipe.needs))) or "any"
        table.add_row(name, recipe.paper, recipe.does, made_for, status_of(name))
    for name, place in installed().items():
        table.add_row(name, "", f"comes with another package: {place}", "", "")
    return table


def doctor(overrides: Overrides = None) -> None:
    """Say whether a model works here: template, stop tokens, context, memory, speed. Exit code 1 if it does not."""
    given = overrides or []
    _, setup = configured(given)
    check_used("doctor", given, ("scenario", "model", "engine", "algorithm=", "algorithm", "learner", "train"))
    console = Console()
    console.print(Text(f"looking at model={setup.model.path} for {setup.scenario.name}", style="dim"), soft_wrap=True)
    if (note := words_note(setup)) is not None:
        console.print(Text(printable(note)), soft_wrap=True)
    from mas.training.diagnosis import diagnose

    broken = []
    for finding in diagnose(setup, lambda text: console.print(Text(printable(text), style="dim"))):
        style = "red" if finding.is_fatal else ""
        line = Text.assemble((f"{finding.name:<14}", "bold"), (printable(finding.text), style))
        console.print(line, soft_wrap=True)
        if finding.is_fatal:
            broken.append(finding.name)
    if broken:
        console.print(Text(f"does not work here: {', '.join(broken)}", style="bold red"), soft_wrap=True)
        raise typer.Exit(1)
    console.print(Text("works here", style="bold green"))


DEMO_OVERRIDES = (
    *("scenario=shop", "model=smollm2", "model.threads=2"),
    *("algorithm.sampler.candidates=8", "train.steps=24", "train.eval_every=12"),
)
"""What is trained: a customer and a seller of SmolLM2-135M, one adapter each."""
_SHOWN_TASKS = 3

Tiny = Annotated[bool, typer.Option("--tiny", help="the study of the tiny base instead, which mas makes itself")]


def demo(
    out: Annotated[
        Path | None, typer.Option(help="run directory; default: runs/demo, with --tiny runs/demo-tiny")
    ] = None,
    tiny: Tiny = False,
) -> None:
    """Train a customer and a seller of SmolLM2-135M in minutes on two cores; show what they say before and after.

    Run the same command again to resume an interrupted training.
    """
    out = out or Path("runs/demo-tiny" if tiny else "runs/demo")
    if tiny:
        tiny_demo(out)
        return
    console = Console()
    config = load_config([*DEMO_OVERRIDES, f"run_dir={out}"])
    setup = resolve(config)
    train_setup(config, setup, console)
    from mas.observe.report import write_report
    from mas.runs.report import build_report

    report = build_report(out, config, setup.plan)
    write_report(out / "report.html", report)
    show_demo(console, report.conversations)
    console.print(Text(" ".join(report.headline), style="bold"))
    console.print(f"Curves and whole conversations: {out / 'report.html'}", soft_wrap=True)


def show_demo(console: Console, comparisons: Sequence[ConversationPair]) -> None:
    """What the team said of the same held-out tasks before and after. Model text is never read as markup."""
    for comparison in comparisons[:_SHOWN_TASKS]:
        world = next((scene.world for scene in comparison.before.scenes), comparison.title)
        console.print(Text(f"\n{printable(world)}", style="bold"))
        for label, conversation in (("before", comparison.before), ("after", comparison.after)):
            console.print(_conversation_line(label, conversation), soft_wrap=True)
    console.print()


def _conversation_line(label: str, conversation: Conversation) -> Text:
    said = ", ".join(f"{line.agent} says '{printable(line.text).strip()}'" for line in conversation.lines)
    outcome = ("right", "green") if conversation.is_success else ("wrong", "red")
    return Text.assemble((f"  {label:<7}", "dim"), said, ": ", outcome)


_NO_BENCHMARKS = (
    "benchmarks are no part of the installed package: clone the repository of mas and write `make bench` there, or "
    "install the clone (pip install --editable '.[bench]') and write mas bench"
)


def tools(
    team: Annotated[Path, typer.Argument(metavar="TEAM", help="a team's YAML file; its servers are started")],
) -> None:
    """List what a team's servers of tools offer, as lines for `tools` of a role."""
    servers = load_team(team).tools
    if not servers:
        raise ConfigError(f"{team} names no servers under 'tools': add one, such as 'files: {{command: PROGRAM}}'")
    offered = asyncio.run(offered_tools(servers))
    typer.echo(yaml.safe_dump(offered, sort_keys=False, allow_unicode=True, width=10_000), nl=False)


def mcp(run_dir: PlayedRun, overrides: Overrides = None, trust: Trust = False) -> None:
    """Serve a run's team as the tool `ask_team` of an MCP client, over standard input and output."""
    run_dir = local_run(run_dir)
    config = load_run_config(run_dir, overrides or [], uses=PLAYS)
    check_used("mcp", overrides or [], tuple(name for name in PLAYING if name != "train.seed"))
    from mas.endpoint.mcp_server import check_mcp, claim_output

    check_mcp()
    setup, output, console = resolve(config), claim_output(), Console(stderr=True)
    from mas.endpoint.command import serve_tool

    serve_tool(run_dir, setup, output, console)


def add_bench(app: typer.Typer, root: Path = Path(__file__).parents[1]) -> None:
    """Give the app the commands of `benchmarks/`; without it one command, which raises ConfigError.

    Args:
        root: of the repository, if mas runs from one.
    """
    if (root / "pyproject.toml").is_file() and (root / "benchmarks" / "command.py").is_file():
        _import_benchmarks(root / "benchmarks")
        app.add_typer(import_module("benchmarks.command").bench)
        return

    @app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
    def bench() -> None:
        """Measure mas against others, in a clone of its repository."""
        raise ConfigError(_NO_BENCHMARKS)


def _import_benchmarks(folder: Path) -> None:
    """Make `benchmarks` this folder, whatever another package has installed under that name."""
    if "benchmarks" in sys.modules:
        return
    spec = spec_from_file_location("benchmarks", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["benchmarks"] = module
    spec.loader.exec_module(module)
