"""What a command is given: a run, overrides, and the configuration that they make."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from mas.config.access import PLAYS
from mas.config.completion import complete_override
from mas.config.load import load_config, presets
from mas.config.options import Config
from mas.config.plain_values import literal
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.runs.resolve import resolve, words_note
from mas.training.setup import Setup

OVERRIDES_HELP = (
    "dotted.key=value, such as scenario=plan_path algorithm=at_grpo train.steps=20 run_dir=runs/x; "
    "`mas config` prints all keys"
)
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="OVERRIDES", help=OVERRIDES_HELP, autocompletion=complete_override),
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="directory of a run, made by `mas train`")]
_PLAYED_HELP = "directory of a run, made by `mas train`, or a published team, hub:ORG/NAME or hub:ORG/NAME@REVISION"
PlayedRun = Annotated[Path, typer.Argument(metavar="RUN_DIR", help=_PLAYED_HELP)]
"""A run or a team of a hub; what the command is given goes through `local_run`."""
FromStep = Annotated[
    int | None,
    typer.Option("--from", min=0, metavar="STEP", help="go on from this checkpoint; later ones are deleted"),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="write all of it there, too; -: print that and nothing else"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="print only the result, and errors")]
Sampled = Annotated[bool, typer.Option("--sampled", help="sample as in training instead of greedily")]

_EVALUATING = (*PLAYS, "start")
"""Beside the trained team the one is played that training began with."""
PLAYING = (
    "scenario",
    "algorithm=",
    "algorithm.team",
    "algorithm.policy",
    "model",
    "engine",
    "peers",
    "train.seed",
    "train.answer_timeout_s",
)
"""Overrides that change what a command does which only plays."""


def configured(overrides: list[str]) -> tuple[Config, Setup]:
    """The configuration that the overrides make, and what it plays.

    Raises:
        ConfigError: as `resolve`.
    """
    config = load_config(overrides)
    return config, resolve(config)


def tell_stopped(run: str, words: Sequence[str]) -> None:
    """Say on standard error how a training that was interrupted goes on. `words`: of its command."""
    from mas.training.checkpoint import checkpoint_steps  # loads torch, which is loaded where something was trained

    saved = checkpoint_steps(Path(run) / "checkpoints")
    what = f"Resume from step {saved[-1]}" if saved else "Nothing was saved yet. Start again"
    Console(stderr=True).print(Text(f"stopped. {what} with: {shlex.join(words)}"), soft_wrap=True)


def check_sampling(setup: Setup) -> None:
    """Refuse to sample with limits that the engine cannot sample with; greedy answers need none.

    Raises:
        ConfigError: says which role has them.
    """
    if setup.engine.name == "vllm":
        from mas.serving.vllm_options import check_limits  # loads what serves, which greedy commands do later

        check_limits(setup.team)


def transferred(run_dir: Path, overrides: list[str], on: str) -> tuple[Config, Config]:
    """The configuration of a run, and the same with another scenario to play; without one (an empty text) both equal.

    Args:
        on: the scenario; its preset and the overrides of `scenario` then say its options, the run's own are left out.

    Raises:
        ConfigError: no such scenario, or overrides that contradict `on`.
    """
    if not on:
        config = load_run_config(run_dir, overrides, uses=_EVALUATING)
        return config, config
    options = [word for word in overrides if word.lstrip("+").startswith("scenario")]
    for word in options:
        if not word.lstrip("+").startswith("scenario.options"):
            raise ConfigError(f"{word!r}: --on {on} names the scenario; with it write scenario.options.KEY=VALUE only")
    trained = load_run_config(run_dir, [word for word in overrides if word not in options], uses=_EVALUATING)
    chosen = f"scenario={on}" if on in presets("scenario") else f"scenario.name={on}"
    return trained, trained.model_copy(update={"scenario": load_config([chosen, *options]).scenario})


def exported(run_dir: Path, overrides: list[str], algorithm: str) -> Config:
    """The configuration of a run, with the parts of another algorithm that samples and labels; empty: its own.

    Overrides of `algorithm` are then that one's, except for the team, its adapters and who is trained.

    Raises:
        ConfigError: as `load_run_config` and `load_config`.
    """
    if not algorithm:
        return load_run_config(run_dir, overrides, uses=PLAYS)
    kept = ("team", "policy", "roles")
    parts = [
        word
        for word in overrides
        if word.lstrip("+").startswith("algorithm.")
        and not word.lstrip("+").startswith(tuple(f"algorithm.{name}" for name in kept))
    ]
    trained = load_run_config(run_dir, [word for word in overrides if word not in parts], uses=PLAYS)
    name = trained.scenario.name
    chosen = f"scenario={name}" if name in presets("scenario") else f"scenario.name={literal(name)}"
    other = load_config([chosen, f"algorithm={literal(algorithm)}", *parts]).algorithm
    of_run = {name: getattr(trained.algorithm, name) for name in kept}
    return trained.model_copy(update={"algorithm": other.model_copy(update=of_run)})


def tell_loading(console: Console, what: str, setup: Setup) -> None:
    """Print before what takes seconds and prints nothing: what a command does, what it loads, and `words_note`."""
    remote = setup.engine.remote.url if setup.is_served_elsewhere else None
    loads = f"loading {setup.model.path}" if remote is None else f"asking {remote}"
    console.print(Text(printable(f"{what}; {loads}"), style="dim"), soft_wrap=True)
    if (note := words_note(setup)) is not None:
        console.print(Text(printable(note)), soft_wrap=True)


def check_named(command: str, overrides: list[str]) -> None:
    """Refuse to play what nobody named. `command` is written with what comes before the overrides.

    Raises:
        ConfigError: no override names a scenario.
    """
    keys = {override.lstrip("+").partition("=")[0] for override in overrides}
    if not keys & {"scenario", "scenario.name"}:
        raise ConfigError(
            f"say what is played: mas {command} RUN_DIR, or mas {command} scenario=NAME, where NAME is one such as "
            "relay, two_hop, plan_path or debate; `mas scenarios` lists all"
        )


def check_used(command: str, overrides: list[str], used: tuple[str, ...]) -> None:
    """Refuse overrides that are right and yet change nothing that a command does."""
    for override in overrides:
        if not override.lstrip("+").startswith(used):
            names = ", ".join(name.rstrip("=") for name in used)
            raise ConfigError(f"{override!r} has no effect on `mas {command}`, which depends on: {names}")
