"""Evaluation from Python, as `mas eval` does it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mas.api.console import console_of
from mas.config.load import listed_overrides
from mas.core.blocking import alone, asynchronous

if TYPE_CHECKING:
    from mas.training.evaluate import Evaluation


@alone
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
        MasError: `tasks` is below 1, there is no such run, it has learned nothing yet, or as
            `mas.training.compare.compare`.
    """
    from mas.evaluating import asked_of, play

    asked = asked_of(Path(run_dir), listed_overrides(overrides), tasks, is_sampled=is_sampled, on=on)
    return play(asked, console_of(console, quiet=quiet))


evaluate_async = asynchronous(evaluate)
