"""Every task of a fixed set once, then all of them again."""

from collections.abc import Mapping, Sequence, Set
from random import Random
from typing import Any

from mas.core.seeds import derive_seed
from mas.core.tasks import Outcome, Pick


class Epochs:
    """An epoch plays tasks 0 to `size` - 1 once each; a step may end in the middle of one.

    A task that a step has drawn already waits for the next draw that may have it.
    """

    def __init__(self, arm: str, size: int, *, shuffle: bool, seed: int) -> None:
        self._arm, self._size, self._shuffle, self._seed = arm, size, shuffle, seed
        self._drawn = 0
        self._waiting: list[int] = []
        self._known: tuple[int, Sequence[int]] = (0, self._order(0))

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        used = {pick.index for pick in without}
        picks = [index for index in self._waiting if index not in used][:count]
        for index in picks:
            self._waiting.remove(index)
        used.update(picks)
        while len(picks) < count:
            index = self._next()
            if not without or index not in used or len(used) == self._size:
                picks.append(index)
                used.add(index)
            else:
                self._waiting.append(index)
        return [Pick(self._arm, index) for index in picks]

    def tell(self, outcomes: Sequence[Outcome]) -> None:
        pass

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn, "waiting": list(self._waiting)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn, self._waiting = int(state["drawn"]), [int(index) for index in state["waiting"]]

    def metrics(self) -> Mapping[str, float]:
        """`epoch`: epochs done, with the fraction of the one that is going on."""
        return {"epoch": (self._drawn - len(self._waiting)) / self._size}

    def _next(self) -> int:
        epoch, place = divmod(self._drawn, self._size)
        self._drawn += 1
        if epoch != self._known[0]:
            self._known = epoch, self._order(epoch)
        return self._known[1][place]

    def _order(self, epoch: int) -> Sequence[int]:
        every = range(self._size)
        return Random(derive_seed("epoch", self._seed, epoch)).sample(every, self._size) if self._shuffle else every
