"""Failed tasks, played again."""

from collections.abc import Mapping, Sequence, Set
from fractions import Fraction
from typing import Any

from mas.config.sampling import ReplayOptions
from mas.core.tasks import Pick, TaskOutcome, TaskSource
from mas.training.tasks.shares import due

_NEW, _AGAIN = "new", "again"


class Replay:
    """A share of every step are tasks that failed before, the oldest first; the others come from another source.

    That source is told of its own draws alone: what is played again says nothing of how hard an arm is. Where too few
    tasks have failed, it fills the step. A task of which no episode could be played keeps its place and its tries.
    """

    def __init__(self, source: TaskSource, options: ReplayOptions) -> None:
        again = Fraction(repr(options.share))
        self._source, self._options = source, options
        self._shares = {_NEW: 1 - again, _AGAIN: again}
        self._given = {_NEW: 0, _AGAIN: 0}
        self._failed: dict[Pick, int] = {}
        self._again: dict[Pick, int] = {}

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        wanted = due(self._shares, self._given, count)
        self._given = {name: self._given[name] + wanted[name] for name in wanted}
        failed = [pick for pick in self._failed if pick not in without][: wanted[_AGAIN]]
        # A step's further draws add to its first one, which has nothing to leave out.
        self._again = (self._again if without else {}) | {pick: self._failed[pick] for pick in failed}
        used = {*without, *failed} if without else without
        return [*self._source.draw(step, count - len(failed), used), *failed]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        self._source.tell([outcome for outcome in outcomes if outcome.pick not in self._again])
        for outcome in outcomes:
            tries = self._again[outcome.pick] + 1 if outcome.pick in self._again else 0
            self._failed.pop(outcome.pick, None)
            if outcome.success < self._options.below and tries < self._options.tries:
                self._failed[outcome.pick] = tries
        for pick in list(self._failed)[: -self._options.memory]:
            del self._failed[pick]

    def state(self) -> Mapping[str, Any]:
        failed = [[pick.arm, pick.index, tries] for pick, tries in self._failed.items()]
        return {"source": self._source.state(), "given": dict(self._given), "failed": failed}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._source.restore(state["source"])
        self._given = {name: int(state["given"][name]) for name in self._shares}
        self._failed = {Pick(arm, index): tries for arm, index, tries in state["failed"]}

    def metrics(self) -> Mapping[str, float]:
        """`failed`: tasks that wait to be played again; `replayed`: those of the step that were."""
        own = {"failed": float(len(self._failed)), "replayed": float(len(self._again))}
        return {**self._source.metrics(), **own}
