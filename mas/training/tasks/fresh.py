"""Tasks that were never played before."""

from collections.abc import Mapping, Sequence, Set
from random import Random
from typing import Any

from mas.core.seeds import derive_seed
from mas.core.tasks import Pick, TaskOutcome
from mas.training.tasks.cursors import place


class Fresh:
    """Every step has tasks of its own. It remembers nothing: the seed and the step's number say which.

    Args:
        size: how many tasks there are, None: without end. Of finitely many a step draws without repeating one.
    """

    def __init__(self, arm: str, size: int | None, seed: int) -> None:
        self._arm, self._size, self._seed = arm, size, seed

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        if self._size is None:
            first = place("tasks", self._seed, step)
            return [Pick(self._arm, first + number) for number in range(count)]
        random = Random(derive_seed("tasks", self._seed, step))
        used = {pick.index for pick in without}
        left = [index for index in range(self._size) if index not in used]
        drawn = random.sample(left, min(count, len(left)))
        drawn += random.sample(sorted(used), count - len(drawn))
        return [Pick(self._arm, index) for index in drawn]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        pass

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass

    def metrics(self) -> Mapping[str, float]:
        return {}
