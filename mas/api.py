"""What `import mas` offers beside configurations; small on purpose, and loaded when it is used."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mas.config.options import Config
from mas.core.scenario import Scenario
from mas.overrides import checked_scenario, tell_loading
from mas.scenarios.attempts import arm_builder
from mas.scenarios.fits import check_fits

if TYPE_CHECKING:
    from mas.training.crew import Opening
    from mas.training.evaluate import Evaluation
    from mas.training.trainer import Outcome


def train(
    config: Config, *, from_step: int | None = None, console: Console | None = None, quiet: bool = False
) -> "Outcome":
    """Train in `config.run_dir`, or go on with the run that is there, as `mas train` does; also in a notebook.

    Args:
        from_step: go on from this checkpoint and delete later ones; None: from the latest.
        console: where progress is printed; None: standard output.
        quiet: print nothing, wherever it would be.

    Raises:
        MasError: the tiny base cannot read the scenario's prompts, or as `mas.training.run.train_in_directory`.
    """
    return train_scenario(config, checked_scenario(config), _console(console, quiet=quiet), from_step=from_step)


def train_scenario(
    config: Config,
    scenario: Scenario,
    console: Console,
    *,
    from_step: int | None = None,
    open_bus: "Callable[[], Opening | None] | None" = None,
) -> "Outcome":
    """What `mas.train` and `mas train` share: check, print what is trained, find opponents, train.

    Args:
        scenario: the one that `config` names, its team and peers checked.
        open_bus: how the team is put on a bus, asked before anything is loaded; None: all of it in this process.

    Raises:
        MasError: as `train` and `open_bus`.
    """
    check_fits(config, scenario)
    team, steps, place = config.algorithm.team, config.train.steps, config.run_dir
    what = f"training {scenario.name}, team {team}, {config.algorithm.name}, up to {steps} steps, in {place}"
    tell_loading(console, what, config)
    opening = None if open_bus is None else open_bus()
    from mas.training.run import train_in_directory

    opponents = None
    if config.algorithm.opponents is not None:
        from mas.league.opponents import open_pool

        opponents = open_pool(config, scenario, from_step)
    build = arm_builder(config)
    return train_in_directory(
        config, scenario, console=console, opening=opening, build=build, opponents=opponents, from_step=from_step
    )


def evaluate(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    tasks: int | None = None,
    is_sampled: bool = False,
    on: str = "",
    console: Console | None = None,
    quiet: bool = False,
) -> "dict[str, Evaluation]":
    """Play a run's team on held-out tasks, as `mas eval` does; also in a notebook.

    Args:
        run_dir: directory of a run.
        overrides: as those of `mas eval`, such as `train.seed=1`.
        tasks: how many; None: `train.eval_tasks`.
        is_sampled: answers are sampled as in training, not greedy.
        on: another scenario that is played instead; `overrides` may then hold `scenario.options.KEY=VALUE`.
        console, quiet: as those of `train`.

    Returns:
        `trained` and `untrained`, or `served` with `engine=openai`.

    Raises:
        MasError: there is no such run, it has learned nothing yet, or as `mas.training.compare.compare`.
    """
    from mas.evaluating import asked_of, play

    asked = asked_of(Path(run_dir), list(overrides), tasks, is_sampled=is_sampled, on=on)
    return play(asked, _console(console, quiet=quiet))


def _console(console: Console | None, *, quiet: bool) -> Console:
    return Console(quiet=True) if quiet else console or Console()
