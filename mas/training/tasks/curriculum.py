"""One arm after the other, each until the team can do it."""

from collections.abc import Mapping, Sequence, Set
from statistics import fmean
from typing import Any

from mas.core.scenario import Pick, TaskOutcome
from mas.training.tasks.cursors import Cursors


class Curriculum:
    """The stages are the arms in order; the last one never ends, and there is no way back.

    A stage is over when the mean success of a step's tasks was at least `threshold` for `patience` steps in a row. A
    step of which no task could be played changes nothing.
    """

    def __init__(self, cursors: Cursors, *, threshold: float, patience: int) -> None:
        self._cursors, self._threshold, self._patience = cursors, threshold, patience
        self._stage = self._streak = 0

    @property
    def arm(self) -> str:
        """The stage that is going on."""
        return list(self._cursors.taken)[self._stage]

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        return self._cursors.take(self.arm, count, without)

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        if not outcomes:
            return
        is_enough = fmean(outcome.success for outcome in outcomes) >= self._threshold
        self._streak = self._streak + 1 if is_enough else 0
        if self._streak >= self._patience and self._stage + 1 < len(self._cursors.taken):
            self._stage, self._streak = self._stage + 1, 0

    def state(self) -> Mapping[str, Any]:
        return {"stage": self._stage, "streak": self._streak, "taken": dict(self._cursors.taken)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._cursors.restore(state["taken"])
        self._stage, self._streak = int(state["stage"]), int(state["streak"])

    def metrics(self) -> Mapping[str, float]:
        """`stage`: number of the stage that the next step plays, from 0."""
        return {"stage": float(self._stage)}
