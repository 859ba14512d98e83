"""Several arms in exact proportions."""

from collections.abc import Mapping, Sequence, Set
from typing import Any

from mas.core.scenario import Pick, TaskOutcome
from mas.training.tasks.cursors import Cursors
from mas.training.tasks.shares import due, proportions


class Mixture:
    """Every step has its share of each arm by the largest remainder; what is left over is carried to the next step."""

    def __init__(self, cursors: Cursors, weights: Mapping[str, float]) -> None:
        self._cursors, self._shares = cursors, proportions(weights)

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        counts = due(self._shares, self._cursors.taken, count)
        return [pick for arm, number in counts.items() for pick in self._cursors.take(arm, number, without)]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        pass

    def state(self) -> Mapping[str, Any]:
        return {"taken": dict(self._cursors.taken)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._cursors.restore(state["taken"])

    def metrics(self) -> Mapping[str, float]:
        return {}
