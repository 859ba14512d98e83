"""Training from Python, as `mas train` does it: on a scenario by its name, questions of one's own, or a class of
environments.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mas.api.console import console_of
from mas.api.run import Run
from mas.api.team import Team, team_file
from mas.config.load import load_config, presets
from mas.config.options import Config, ScenarioOptions
from mas.config.plain_values import literal
from mas.core.concurrency import asynchronous, exclusive
from mas.core.errors import ConfigError
from mas.core.team import TeamSpec
from mas.runs.overrides import tell_loading
from mas.runs.resolve import check_fits, resolve
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.session import Opening
    from mas.training.trainer import TrainingOutcome


RewardFunction = Callable[..., float]


def questions(path: Path | str, *, reward: RewardFunction | str | None = None, **options: Any) -> ScenarioOptions:
    """Questions from a file of one's own, as a task for `mas.train`.

    Args:
        path: a file of one JSON object per line with the fields `question` and `answer`, or what else
            `scenario.options.path` takes.
        reward: a function of the team's answer and the row, `score(said, row) -> float`, which stands in a file; or
            `file.py:function`. None: a scorer says what is right.
        options: other options of the scenario, such as `scorer="number"`, `question="q"` or `split="part"`.

    Raises:
        ConfigError: the function is not in a file, from which another process could load it.
    """
    given = {"path": str(path), **options}
    if reward is not None:
        given["reward"] = reward if isinstance(reward, str) else _place_of(reward)
    return ScenarioOptions(name="questions", options=given)


def class_name(kind: type) -> str:
    """What `scenario.name` calls a class of environments: `file.py:CLASS`, or `package.module:CLASS`; from a notebook
    or a prompt `__main__:CLASS`, which no other process can load.

    Raises:
        ConfigError: the class stands inside a function or another class, or its name is another one's now.
    """
    name, module = kind.__qualname__, sys.modules.get(kind.__module__)
    if getattr(module, name, None) is not kind:
        raise ConfigError(
            f"task: {name} is not a class at the top of a file or a notebook, from which a run loads it: move it "
            "there, or pass 'file.py:CLASS'"
        )
    return _in_file(kind) or f"{kind.__module__}:{name}"


def _place_of(function: RewardFunction) -> str:
    """`file.py:function`, or `package.module:function`."""
    found = _in_file(function)
    if found is None:
        raise ConfigError(
            f"reward: {getattr(function, '__qualname__', function)!r} is not a function at the top of a file, from "
            "which a run that goes on loads it: write it into a file such as reward.py, and pass it or "
            "'reward.py:function'"
        )
    return found


def _in_file(code: object) -> str | None:
    """`file.py:NAME` of what stands at the top of a file, in a package with `__init__.py` `package.module:NAME`, as
    only so its relative imports work; None: it does not."""
    name = getattr(code, "__qualname__", "")
    module = sys.modules.get(getattr(code, "__module__", None) or "")
    file = Path(getattr(module, "__file__", None) or "")
    is_there = getattr(module, name, None) is code and file.suffix == ".py" and file.is_file()
    if module is None or not is_there:
        return None
    package = sys.modules.get(getattr(module, "__package__", None) or "")
    is_packed = getattr(package, "__file__", None) is not None and module.__name__ != "__main__"
    return f"{module.__name__ if is_packed else file.absolute()}:{name}"


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
        model: the name of a preset; None: the tiny base.
        algorithm: the name of a preset, or a file of yours; None: AT-GRPO.
        steps: `train.steps`; None: the default.
        seed: `train.seed`; None: the default.
        run_dir: where the run is kept; None: the default, `runs/latest`.
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
