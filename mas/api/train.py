"""Training and evaluation from Python, as the commands do them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mas.api.console import console_of
from mas.api.run import Run
from mas.api.task import class_name
from mas.api.team import Team, team_file
from mas.config.load import load_config, presets
from mas.config.options import Config, ScenarioOptions
from mas.config.plain_values import literal
from mas.core.concurrency import asynchronous, exclusive
from mas.core.errors import ConfigError
from mas.core.team import TeamSpec
from mas.overrides import tell_loading
from mas.runs.resolve import resolve
from mas.runs.scenario import check_fits
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.session import Opening
    from mas.training.trainer import TrainingOutcome


@exclusive
def train(
    team: Config | Team | TeamSpec | Path | str,
    task: ScenarioOptions | type | str | None = None,
    *,
    model: str | None = None,
    algorithm: str | None = None,
    steps: int | None = None,
    seed: int | None = None,
    run_dir: Path | str | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    from_step: int | None = None,
    console: Console | None = None,
    quiet: bool = False,
) -> Run:
    """Train a team on a task, or go on with the run that is in its directory; also in a notebook.

    Args:
        team: one of the task's teams by its name, a file, a `Team`, or what a function of `mas.protocols` returns. Or a
            whole `Config`, and nothing else but `from_step` and what is printed.
        task: a scenario by the name of its preset, `mas.questions(...)`, or a class of environments of your own (see
            `mas.scenarios.user_class`), whose arguments are `scenario.options.*` of `options`.
        model, algorithm: names of presets; None: the tiny base, and what the scenario's preset says.
        steps, seed, run_dir: `train.steps`, `train.seed` and where the run is kept; None: the defaults.
        options: any other options by their dotted keys, such as `{"train.tasks_per_step": 8}`.
        from_step: go on from this checkpoint and delete later ones; None: from the latest.
        console: where progress is printed; None: standard output.
        quiet: print nothing, wherever it would be.

    Returns:
        The run, with how training ended as its `outcome`.

    Raises:
        MasError: the tiny base cannot read the scenario's prompts, or as `load_config` and
            `mas.runs.train.train_in_directory`.
    """
    if isinstance(team, Config):
        named = {"task": task, "model": model, "algorithm": algorithm, "steps": steps, "seed": seed, "run_dir": run_dir}
        if said := [name for name, value in {**named, "options": options or None}.items() if value is not None]:
            raise ConfigError(f"{', '.join(said)}: a Config says that already; put it into load_config(...)")
        config = team
    else:
        chosen = {"model": model, "algorithm": algorithm, "train.steps": steps, "train.seed": seed}
        given = {**chosen, "run_dir": None if run_dir is None else str(run_dir)}
        words = [f"{key}={literal(value)}" for key, value in given.items() if value is not None]
        words += [f"{key}={literal(value)}" for key, value in _checked_options(options).items()]
        config = load_config([f"algorithm.team={literal(_team_name(team))}", *_task_words(task), *words])
    outcome = train_setup(config, resolve(config), console_of(console, quiet=quiet), from_step=from_step)
    return Run(Path(config.run_dir), outcome)


train_async = asynchronous(train)


def _task_words(task: ScenarioOptions | type | str | None) -> list[str]:
    """The overrides that choose a task.

    Raises:
        ConfigError: it is none.
    """
    if task is None:
        raise ConfigError(
            "say what is trained: mas.train(team, task), where task is a scenario such as 'relay' or 'questions', "
            "mas.questions('train.jsonl') or a class of environments; `mas scenarios` lists all"
        )
    if isinstance(task, str | type):
        return [f"scenario={literal(task if isinstance(task, str) else class_name(task))}"]
    if not isinstance(task, ScenarioOptions):
        raise ConfigError(
            f"task={task!r} is neither a scenario's name nor mas.questions(...) nor a class of environments "
            "(docs/scenarios.md)"
        )
    chosen = f"scenario={task.name}" if task.name in presets("scenario") else f"scenario.name={task.name}"
    return [chosen, f"scenario.options={literal(task.options)}"] if task.options else [chosen]


def _team_name(team: Team | TeamSpec | Path | str) -> str:
    """What `algorithm.team` calls it.

    Raises:
        ConfigError: it is no team. Otherwise as `team_file`.
    """
    if isinstance(team, Team | TeamSpec):
        return str(team_file(team.spec if isinstance(team, Team) else team))
    if isinstance(team, str | Path):
        return str(team)
    raise ConfigError(
        f"team={team!r} is neither the name of a team, a file, a mas.Team nor a TeamSpec; a run goes on with "
        "mas.train(run.config(['train.steps=60']))"
    )


def _checked_options(options: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise ConfigError(f"options={options!r}: write a mapping such as {{'train.tasks_per_step': 8}}")
    return options


def train_setup(
    config: Config,
    setup: Setup,
    console: Console,
    *,
    from_step: int | None = None,
    open_bus: "Callable[[], Opening | None] | None" = None,
) -> "TrainingOutcome":
    """What `mas.train` and `mas train` share: check, print what is trained, find opponents, train.

    Args:
        setup: what `config` plays.
        open_bus: how the team is put on a bus, asked before anything is loaded; None: all of it in this process.

    Raises:
        MasError: as `train` and `open_bus`.
    """
    check_fits(setup)
    scenario = setup.scenario
    team, steps, place = config.algorithm.team, config.train.steps, config.run_dir
    what = f"training {scenario.name}, team {team}, {config.algorithm.name}, up to {steps} steps, in {place}"
    tell_loading(console, what, setup)
    opening = None if open_bus is None else open_bus()
    from mas.runs.train import train_in_directory

    opponents = None
    if config.algorithm.opponents is not None:
        from mas.league.opponents import open_pool

        opponents = open_pool(config, scenario, from_step)
    return train_in_directory(
        config, scenario, console=console, opening=opening, opponents=opponents, from_step=from_step, played=setup
    )
