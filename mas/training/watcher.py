"""Who is told what happens in training."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from mas.core.records import Episode
from mas.training.evaluate import Evaluation

Metrics = dict[str, Any]


class Watcher(Protocol):
    """Who is told what happens: a run directory, a progress display, a test."""

    def on_resume(self, step: int) -> None:
        """Training begins, after so many steps already done."""

    def on_step(self, step: int, metrics: Metrics, episodes: Sequence[Episode]) -> None:
        """A step is done; step 0 is the warm start."""

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """A step left something that people may want to read, as JSON."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """The team was evaluated, `greedy`, `sampled`, or greedy behind a `warm_start`."""
