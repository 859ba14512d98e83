"""Tasks in the endless row of their numbers: those that were never played before, and how far each arm was taken."""

from collections.abc import Mapping, Sequence, Set
from random import Random
from typing import Any

from mas.core.naming import derive_seed
from mas.core.scenario import Pick, TaskOutcome


def place(*parts: str | int) -> int:
    """Where in the endless row of tasks something begins: far from where anything else does."""
    return derive_seed(*parts) % 10**9 * 1000


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


class Cursors:
    """Takes tasks of each arm in order, from a place that depends on the seed; a finite arm begins again at its end.

    Args:
        sizes: arm -> how many tasks it has, None where they never end.
    """

    def __init__(self, sizes: Mapping[str, int | None], seed: int) -> None:
        self._sizes = sizes
        self._starts = {arm: place("arm", seed, arm) for arm in sizes}
        self.taken = dict.fromkeys(sizes, 0)

    def take(self, arm: str, count: int, without: Set[Pick] = frozenset()) -> list[Pick]:
        """The next so many tasks of an arm.

        Args:
            without: passed over, and counted as taken, while the arm has others.
        """
        size, picks = self._sizes[arm], list[Pick]()
        used = {pick for pick in without if pick.arm == arm}
        while len(picks) < count:
            if len(used) == size:
                used = set()
            number = self._starts[arm] + self.taken[arm]
            self.taken[arm] += 1
            pick = Pick(arm, number if size is None else number % size)
            if pick not in used:
                picks.append(pick)
                used.add(pick)
        return picks

    def restore(self, taken: Mapping[str, Any]) -> None:
        """Go on where so many tasks were taken of each arm.

        Raises:
            ValueError: these are other arms.
        """
        if list(taken) != list(self._sizes):
            raise ValueError(f"it counts tasks of {list(taken)}, the arms are {list(self._sizes)}")
        self.taken = {arm: int(count) for arm, count in taken.items()}
