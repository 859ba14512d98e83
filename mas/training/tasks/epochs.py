"""Every task of a fixed set once, then all of them again."""

from collections.abc import Mapping, Sequence, Set
from random import Random
from typing import Any

from mas.core.naming import derive_seed
from mas.core.scenario import Pick, TaskOutcome

_SOLVED = -1
"""In place of how often a task was played in vain: it was solved once."""


class Epochs:
    """An epoch plays tasks 0 to `size` - 1 once each; a step may end in the middle of one.

    A task that a step has drawn already waits for the next draw that may have it. With `give_up`, a task that no
    episode solved in its first so many plays is left out from then on, and its place in the order is skipped; where all
    are left out, all are played again. Source of that filter: ARPO, arXiv 2505.16282, which keeps tasks that the
    untrained agent solves at least once.
    """

    def __init__(self, arm: str, size: int, *, shuffle: bool, seed: int, give_up: int | None = None) -> None:
        self._arm, self._size, self._shuffle, self._seed = arm, size, shuffle, seed
        self._give_up = give_up
        self._failed: dict[int, int] = {}
        self._drawn = 0
        self._waiting: list[int] = []
        self._known: tuple[int, Sequence[int]] = (0, self._order(0))

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        used, left_out = {pick.index for pick in without}, self._left_out()
        picks = [index for index in self._waiting if index not in used][:count]
        for index in picks:
            self._waiting.remove(index)
        used.update(picks)
        while len(picks) < count:
            index = self._next()
            if not without or index not in used or len(used - left_out) == self._size - len(left_out):
                picks.append(index)
                used.add(index)
            else:
                self._waiting.append(index)
        return [Pick(self._arm, index) for index in picks]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        if self._give_up is None:
            return
        for pick, success in ((outcome.pick.index, outcome.success) for outcome in outcomes):
            if success > 0:
                self._failed[pick] = _SOLVED
            elif self._failed.get(pick) != _SOLVED:
                self._failed[pick] = self._failed.get(pick, 0) + 1
        if len(self._left_out()) == self._size:
            self._failed.clear()
        left_out = self._left_out()
        self._waiting = [index for index in self._waiting if index not in left_out]

    def state(self) -> Mapping[str, Any]:
        failed = {"failed": [[index, plays] for index, plays in self._failed.items()]} if self._failed else {}
        return {"drawn": self._drawn, "waiting": list(self._waiting)} | failed

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn, self._waiting = int(state["drawn"]), [int(index) for index in state["waiting"]]
        self._failed = {int(index): int(plays) for index, plays in state.get("failed", [])}

    def metrics(self) -> Mapping[str, float]:
        """`epoch`: epochs done, with the fraction of the one that is going on; `left_out`: tasks given up."""
        told = {"epoch": (self._drawn - len(self._waiting)) / self._size}
        return told if self._give_up is None else told | {"left_out": float(len(self._left_out()))}

    def _left_out(self) -> set[int]:
        if self._give_up is None:
            return set()
        return {index for index, plays in self._failed.items() if plays >= self._give_up}

    def _next(self) -> int:
        left_out = self._left_out()
        while (index := self._any()) in left_out:
            pass
        return index

    def _any(self) -> int:
        epoch, place = divmod(self._drawn, self._size)
        self._drawn += 1
        if epoch != self._known[0]:
            self._known = epoch, self._order(epoch)
        return self._known[1][place]

    def _order(self, epoch: int) -> Sequence[int]:
        every = range(self._size)
        return Random(derive_seed("epoch", self._seed, epoch)).sample(every, self._size) if self._shuffle else every
