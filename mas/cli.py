"""The command `mas`: which commands there are.

A command's module is imported when that command is given, so that help, completion and the first line of a command that
takes long come at once. The help of each command stands here, too; a test compares it with the command's own.
"""

import sys
from collections import UserDict
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from mas.commands.ending import run_to_its_end
from mas.core.errors import ConfigError
from mas.core.version import VERSION


class CommandPlace(NamedTuple):
    """Where a command stands. `home`: `module:name` of its function or Typer group. `help`: the first paragraph of its
    own."""

    home: str
    help: str


PANELS: dict[str, dict[str, CommandPlace]] = {
    "Look": {
        "new": CommandPlace(
            "mas.commands.new:new",
            "Write a scenario, role, algorithm or team of your own to begin with, and its test.",
        ),
        "check": CommandPlace(
            "mas.commands.check:check",
            "Run the contract suites on scenarios, roles, algorithms and teams of your own. Exit code 1 if one fails.",
        ),
        "scenarios": CommandPlace(
            "mas.scenarios.command:scenarios",
            "List the scenarios, those of other packages included, or say all about one.",
        ),
        "algorithms": CommandPlace(
            "mas.commands.algorithms:algorithms",
            "List the algorithms, or say all about one: its paper, its parts, what it does otherwise.",
        ),
        "graph": CommandPlace(
            "mas.commands.teams:graph",
            "Check a team's graph and draw it: Mermaid text here, an SVG file in a directory.",
        ),
        "tools": CommandPlace(
            "mas.commands.teams:tools",
            "List what a team's servers of tools offer, as lines for `tools` of a role.",
        ),
        "config": CommandPlace(
            "mas.commands.train:show_config",
            "Print the whole configuration that the overrides make, and check it.",
        ),
        "doctor": CommandPlace(
            "mas.commands.models:doctor",
            "Say whether a model works here: template, stop tokens, context, memory, speed. Exit code 1 if it does "
            "not.",
        ),
        "play": CommandPlace(
            "mas.person.command:play",
            "Play along at the terminal. You see what your role or seat sees; Ctrl-D ends the play.",
        ),
    },
    "Train and measure": {
        "train": CommandPlace(
            "mas.commands.train:train",
            "Train a team. The same command again resumes a run that was stopped or killed.",
        ),
        "gateway": CommandPlace(
            "mas.gateway.command:gateway",
            "Train a program of your own, an adapter per role: it calls the roles as models of an OpenAI-compatible "
            "endpoint.",
        ),
        "tinker": CommandPlace(
            "mas.tinker.command:tinker",
            "Serve the Tinker API: programs of the SDK `tinker` train adapters on this base, with AdamW and losses "
            "of theirs.",
        ),
        "eval": CommandPlace(
            "mas.runs.evaluate:evaluate",
            "Evaluate a trained team on held-out tasks, next to the same team untrained.",
        ),
        "run": CommandPlace(
            "mas.runs.play:run",
            "Play one episode and print the conversation: of a trained run, or without RUN_DIR of an untrained team.",
        ),
        "report": CommandPlace(
            "mas.commands.train:report",
            "Write RUN_DIR/report.html: curves, conversations before and after, the team, and how to do it again.",
        ),
        "studio": CommandPlace(
            "mas.studio.command:studio",
            "Show runs and leagues in a browser, while they train and afterwards: curves, comparisons, ladders, games.",
        ),
        "curves": CommandPlace(
            "mas.study.command:curves",
            "Draw what runs learned: a panel per scenario, a line per team, with its seeds.",
        ),
        "timeline": CommandPlace(
            "mas.observe.command:timeline",
            "Show what a traced run did as a waterfall; files of several processes come together by their trace.",
        ),
        "export": CommandPlace(
            "mas.commands.export:export",
            "Write completions to imitate and pairs to prefer, role by role, from trees of a trained team; or "
            "publish it.",
        ),
        "base": CommandPlace(
            "mas.commands.models:base",
            "Make a base model and keep it in the cache: the tiny base of scenario=NAME (of all without one), or "
            "smollm2.",
        ),
    },
    "Compare": {
        "demo": CommandPlace(
            "mas.commands.demo:demo",
            "Train a customer and a seller of SmolLM2-135M in minutes on two cores; show what they say before and "
            "after.",
        ),
        "study": CommandPlace(
            "mas.study.command:study",
            "Compare arms over scenarios and seeds at equal token budgets. The same command again does what is "
            "missing.",
        ),
        "league": CommandPlace(
            "mas.league.command:league",
            "Tournaments of a game, and a pool of members.",
        ),
        "bench": CommandPlace(
            "mas.commands.bench:bench_app",
            "Measure mas against others, interleaved on this machine; exit code 1 where a target is not met.",
        ),
    },
    "Serve and spread": {
        "serve": CommandPlace(
            "mas.commands.serve:serve",
            "Serve a run's base, adapters and team over an OpenAI-compatible endpoint, until Ctrl-C.",
        ),
        "openenv": CommandPlace(
            "mas.openenv.command:openenv",
            "Serve a scenario as an OpenEnv environment, a session for each seat, until Ctrl-C.",
        ),
        "mcp": CommandPlace(
            "mas.commands.serve:mcp",
            "Serve a run's team as the tool `ask_team` of an MCP client, over standard input and output.",
        ),
        "agent": CommandPlace(
            "mas.runs.play:agent",
            "Speak for one agent of a team on a bus that processes share, until Ctrl-C; `mas run --bus` plays the "
            "team.",
        ),
        "stop": CommandPlace(
            "mas.runs.play:stop",
            "End all processes of `mas agent` that are on a bus now; each finishes the requests that have begun first.",
        ),
        "broker": CommandPlace(
            "mas.broker.command:broker",
            "Write a mosquitto configuration for a team, with rights from its graph, and run it until Ctrl-C.",
        ),
        "deadletters": CommandPlace(
            "mas.bus.command:deadletters",
            "List the dead letters of a bus's journal; mark them for delivery by the next bus that opens it.",
        ),
        "sandbox": CommandPlace(
            "mas.sandbox.command:sandbox",
            "Run an untrusted Python program, or say how this machine would.",
        ),
        "cluster": CommandPlace(
            "mas.runs.cluster:cluster",
            "What training in several processes needs, what it may gain, and what it does.",
        ),
    },
}
"""Panel of the help -> its commands by their names, in the order of the help."""
PLACES = {name: place for commands in PANELS.values() for name, place in commands.items()}
_QUICK = {
    "new",
    "scenarios",
    "algorithms",
    "graph",
    "tools",
    "config",
    "studio",
    "timeline",
    "mcp",
    "stop",
    "broker",
    "deadletters",
    "sandbox",
    "cluster",
}
"""Those that have something to say at once. Of the others the first line is printed before their module is imported, as
seconds pass."""


def _without_flag_types(params: list[Any]) -> list[Any]:
    """The help says nothing about the type of flags: they take no value."""
    for param in params:
        if getattr(param, "is_flag", False):
            param.metavar = ""
    return params


class MasCommand(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        params = self.get_params(ctx)
        if any("OVERRIDES" in str(param.metavar) for param in params):
            _check_dashes(args, {name for param in params for name in (*param.opts, *param.secondary_opts)})
        return super().parse_args(ctx, args)


def _check_dashes(args: list[str], options: set[str]) -> None:
    """Refuse a key of the configuration that is written as an option, as `--steps 20`."""
    for arg in args:
        name, _, value = arg.partition("=")
        if not name.startswith("--") or name in options:
            continue
        from mas.config.checks import keys_named  # loads the options, which help does without
        from mas.config.load import GROUPS

        word = name.removeprefix("--").replace("-", "_")
        if keys := [word] if word in GROUPS else keys_named(word):
            meant = " or ".join(f"{key}={value or 'VALUE'}" for key in keys)
            raise ConfigError(f"{name} is no option of this command, but a key: write {meant}, without dashes")


class MasGroup(TyperGroup):
    """A command that has commands, such as `mas league`."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class CommandsByName(UserDict[str, Any]):
    """Name -> command, which is imported when it is asked for."""

    def __missing__(self, name: str) -> Any:
        self[name] = _load(name, PLACES[name])
        return self[name]

    def __contains__(self, name: object) -> bool:
        return name in PLACES

    def __iter__(self) -> Iterator[str]:
        return iter(PLACES)

    def __len__(self) -> int:
        return len(PLACES)


def _load(name: str, place: CommandPlace) -> Any:
    """The command, made of its function or Typer group."""
    module, _, attribute = place.home.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        holder = typer.Typer()
        holder.command(name)(found)
        found = holder
    _hide_types_of_flags(found)
    group = typer.main.get_group(found)
    return group.commands.get(name, group)


def _hide_types_of_flags(app: typer.Typer) -> None:
    app.info.cls = MasGroup
    for command in app.registered_commands:
        command.cls = MasCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _hide_types_of_flags(group.typer_instance)


class LazyGroup(MasGroup):
    """All commands: for help and completion by what `PLACES` says of them, and imported when they are given."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**{**attributes, "commands": {}})
        self.commands = CommandsByName()

    def list_commands(self, ctx: Any) -> list[str]:
        return list(PLACES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place, panel = PLACES.get(cmd_name), next((panel for panel, within in PANELS.items() if cmd_name in within), "")
        return place and MasCommand(name=cmd_name, help=place.help, rich_help_panel=panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, found, rest = super().resolve_command(ctx, args)
        if name is None or found is None:
            return name, found, rest
        if name not in _QUICK and not ctx.resilient_parsing and not {"-q", "--quiet", "-h", "--help"} & set(rest):
            _announce(name)
        return name, self.commands[name], rest


def _announce(name: str) -> None:
    """The first line at a terminal, before anything heavy is imported; what is no terminal is told nothing."""
    if sys.stderr.isatty():
        Console(stderr=True).print(Text(f"mas {name}: loading", style="dim"))


app = typer.Typer(
    name="mas",
    cls=LazyGroup,
    help="Teams of LLM agents that can be trained together.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mas {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    """Teams of LLM agents that can be trained together."""
    from mas.config.trust import trusting  # loads the options, which help does without

    context.with_resource(trusting(everything=False))  # `--trust` ends with the command


def main() -> None:
    """Run the command of `sys.argv` and exit, as `mas.commands.ending` says."""
    # The name is also that of completion's variable, `_MAS_COMPLETE`, where Python runs it.
    sys.exit(run_to_its_end(lambda: app(prog_name="mas")))
