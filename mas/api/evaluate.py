"""Evaluation from Python, as `mas eval` does it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from mas.api.console import Printout, console_of, recording
from mas.config.load import listed_overrides
from mas.core.concurrency import asynchronous, exclusive

if TYPE_CHECKING:
    from mas.training.evaluate import Evaluation

_WIDTH = 120
"""Columns of a printed table."""


class Evaluations(dict[str, "Evaluation"]):
    """Evaluations by the name of the team that played. It prints and shows itself as the table of `mas eval`."""

    def __init__(self, found: "Mapping[str, Evaluation]", title: str) -> None:
        super().__init__(found)
        self.title = title

    def _printout(self) -> Printout:
        from mas.runs.evaluate import print_results

        console = recording(_WIDTH)
        print_results(self, self.title, console)
        return Printout.of(console)

    def _repr_html_(self) -> str:
        return self._printout().html

    def __repr__(self) -> str:
        return f"Evaluations({super().__repr__()}, {self.title!r})"

    def __str__(self) -> str:
        return self._printout().text


@exclusive
def evaluate(
    run_dir: Path | str,
    overrides: Sequence[str] = (),
    *,
    tasks: int | None = None,
    is_sampled: bool = False,
    on: str = "",
    console: Console | None = None,
    quiet: bool = False,
) -> Evaluations:
    """Play a run's team on held-out tasks, as `mas eval` does; also in a notebook.

    Args:
        run_dir: directory of a run.
        overrides: as those of `mas eval`, such as `train.seed=1`.
        tasks: how many; None: `train.eval_tasks`.
        is_sampled: answers are sampled as in training, not greedy.
        on: another scenario that is played instead; `overrides` may then hold `scenario.options.KEY=VALUE`.
        console: as that of `train`.
        quiet: as that of `train`.

    Returns:
        `trained` and `untrained`, or `served` with `engine=openai`; `print` them. `success` is a share of the tasks and
        `failures` one of the outputs, `turns` is a mean per task; `calls` and `tokens` are those of all tasks.

    Raises:
        MasError: `tasks` is below 1, there is no such run, it has learned nothing yet, or as
            `mas.training.compare.compare`.
    """
    from mas.runs.evaluate import asked_of, play, title_of

    asked = asked_of(Path(run_dir), listed_overrides(overrides), tasks, is_sampled=is_sampled, on=on)
    return Evaluations(play(asked, console_of(console, quiet=quiet)), title_of(asked))


evaluate_async = asynchronous(evaluate)
