"""Every task of a fixed set once, then all of them again."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from mas.core.seeds import derive_seed
from mas.core.tasks import Outcome, Pick


class Epochs:
    """An epoch plays tasks 0 to `size` - 1 once each; a step may end in the middle of one."""

    def __init__(self, arm: str, size: int, *, shuffle: bool, seed: int) -> None:
        self._arm, self._size, self._shuffle, self._seed = arm, size, shuffle, seed
        self._drawn = 0

    def draw(self, step: int, count: int) -> Sequence[Pick]:
        numbers = range(self._drawn, self._drawn + count)
        self._drawn += count
        orders = {epoch: self._order(epoch) for epoch in {number // self._size for number in numbers}}
        return [Pick(self._arm, orders[number // self._size][number % self._size]) for number in numbers]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        pass

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn = int(state["drawn"])

    def metrics(self) -> Mapping[str, float]:
        """`epoch`: epochs done, with the fraction of the one that is going on."""
        return {"epoch": self._drawn / self._size}

    def _order(self, epoch: int) -> Sequence[int]:
        every = range(self._size)
        return Random(derive_seed("epoch", self._seed, epoch)).sample(every, self._size) if self._shuffle else every
