"""What `import mas` offers beside configurations; small on purpose, and loaded when it is used."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mas.config.options import Config
from mas.config.peers import check_peers
from mas.graph.find import find_team
from mas.scenarios.attempts import arm_builder, configured_scenario

if TYPE_CHECKING:
    from mas.training.evaluate import Evaluation
    from mas.training.trainer import Outcome


def train(config: Config, *, from_step: int | None = None) -> "Outcome":
    """Train in `config.run_dir`, or go on with the run that is there, as `mas train` does; also in a notebook.

    Args:
        from_step: go on from this checkpoint and delete later ones; None: from the latest.

    Raises:
        MasError: as `mas.training.run.train_in_directory`.
    """
    scenario = configured_scenario(config)
    check_peers(config, find_team(scenario, config.algorithm.team))
    from mas.training.run import train_in_directory

    opponents = None
    if config.algorithm.opponents is not None:
        from mas.league.opponents import open_pool

        opponents = open_pool(config, scenario, from_step)
    return train_in_directory(config, scenario, build=arm_builder(config), opponents=opponents, from_step=from_step)


def evaluate(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    tasks: int | None = None,
    is_sampled: bool = False,
    on: str = "",
) -> "dict[str, Evaluation]":
    """Play a run's team on held-out tasks, as `mas eval` does; also in a notebook.

    Args:
        run_dir: directory of a run.
        overrides: as those of `mas eval`, such as `train.seed=1`.
        tasks: how many; None: `train.eval_tasks`.
        is_sampled: answers are sampled as in training, not greedy.
        on: another scenario that is played instead; `overrides` may then hold `scenario.options.KEY=VALUE`.

    Returns:
        `trained` and `untrained`, or `served` with `engine=openai`.

    Raises:
        MasError: there is no such run, it has learned nothing yet, or as `mas.training.compare.compare`.
    """
    from rich.console import Console

    from mas.evaluating import asked_of, play

    return play(asked_of(Path(run_dir), list(overrides), tasks, is_sampled=is_sampled, on=on), Console())
