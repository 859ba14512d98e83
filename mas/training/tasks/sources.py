"""Where training tasks come from beside fresh ones: the same tasks again, failed ones again, or several arms.

Every source says which tasks a step plays, is told how they went, and saves all that its next draw depends on.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from fractions import Fraction
from random import Random
from statistics import fmean
from typing import Any, Literal

from mas.config.tasks import ReplayOptions
from mas.core.scenario import Pick, TaskOutcome, TaskSource
from mas.core.seeds import derive_seed
from mas.training.tasks.plan import first_index

_SOLVED = -1
"""In place of how often a task was played in vain: it was solved once."""
_NEW, _AGAIN = "new", "again"
"""The two kinds of tasks that `Replay` shares a step between."""


class Cursors:
    """Takes tasks of each arm in order, from a place that depends on the seed; a finite arm begins again at its end.

    Args:
        sizes: arm -> how many tasks it has, None where they never end.
    """

    def __init__(self, sizes: Mapping[str, int | None], seed: int) -> None:
        self._sizes = sizes
        self._starts = {arm: first_index("arm", seed, arm) for arm in sizes}
        self.taken = dict.fromkeys(sizes, 0)

    def take(self, arm: str, count: int, without: Set[Pick] = frozenset()) -> list[Pick]:
        """The next so many tasks of an arm. `without`: passed over, and counted as taken, while the arm has others."""
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


def due(shares: Mapping[str, Fraction], given: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of the next `count` each name gets, by the largest remainder, if so many were given before.

    What a name was given less than its share of all, or more, is made up for. Of equal remainders the first name's
    wins. So beginning at nothing every name has its share rounded up or down, and never is one forgotten for long.

    Args:
        shares: name -> its share; they add up to 1.
    """
    total = sum(given.values()) + count
    owed = {name: share * total - given[name] for name, share in shares.items()}
    got = dict.fromkeys(shares, 0)
    for _ in range(count):
        name = max(owed, key=lambda one: owed[one])
        owed[name] -= 1
        got[name] += 1
    return got


def proportions(weights: Mapping[str, float]) -> dict[str, Fraction]:
    """Shares that add up to exactly 1; a weight of 0.1 is a tenth, not the nearest binary fraction."""
    exact = {name: Fraction(repr(weight)) for name, weight in weights.items()}
    return {name: weight / sum(exact.values()) for name, weight in exact.items()}


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


class Mixture(TaskSource):
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


@dataclass(frozen=True, slots=True)
class Trend:
    """The two running means of an arm."""

    fast: float
    slow: float

    @property
    def progress(self) -> float:
        """How far apart they are."""
        return abs(self.fast - self.slow)


class LearningProgress:
    """A bandit over arms: with probability `explore` any, else with a probability proportional to learning progress.

    Progress is the distance of two running means of what an arm's tasks brought, a fast and a slow one. Unlike the
    difference of two steps it does not mistake the noise of a few tasks for learning; unlike its sign, an arm that is
    being forgotten counts as much as one that is being learned.
    Source: Kanitscheider et al., arXiv 2106.14876, section 3; Portelas et al., arXiv 1910.07224 (its absolute value).

    An arm of which nothing is known counts as the arm of greatest progress; without any progress all are alike.

    Args:
        fast, slow: weight of the newest step in the two means, between 0 and 1.
        signal: what of an outcome is followed.
    """

    def __init__(
        self,
        cursors: Cursors,
        *,
        explore: float,
        fast: float,
        slow: float,
        signal: Literal["success", "reward"],
        seed: int,
    ) -> None:
        self._cursors, self._explore, self._seed = cursors, explore, seed
        self._fast, self._slow, self._signal = fast, slow, signal
        self._trends: dict[str, Trend] = {}

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        arms = list(self._cursors.taken)
        random = Random(derive_seed("arms", self._seed, step))
        drawn = random.choices(arms, list(self._chances().values()), k=count)
        return [pick for arm in arms for pick in self._cursors.take(arm, drawn.count(arm), without)]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        for arm in self._cursors.taken:
            brought = [getattr(outcome, self._signal) for outcome in outcomes if outcome.pick.arm == arm]
            if brought:
                self._trends[arm] = self._moved(self._trends.get(arm), fmean(brought))

    def state(self) -> Mapping[str, Any]:
        trends = {arm: asdict(trend) for arm, trend in self._trends.items()}
        return {"taken": dict(self._cursors.taken), "trends": trends}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._cursors.restore(state["taken"])
        self._trends = {arm: Trend(**trend) for arm, trend in state["trends"].items()}

    def metrics(self) -> Mapping[str, float]:
        """`chance.ARM`: the probability that a task of the next step is of this arm."""
        return {f"chance.{arm}": chance for arm, chance in self._chances().items()}

    def _chances(self) -> dict[str, float]:
        arms = list(self._cursors.taken)
        known = [trend.progress for trend in self._trends.values()]
        top = max(known, default=0.0)
        gains = [self._trends[arm].progress if arm in self._trends else top for arm in arms]
        total = sum(gains)
        shares = [gain / total for gain in gains] if total > 0 else [1 / len(arms)] * len(arms)
        return {
            arm: self._explore / len(arms) + (1 - self._explore) * share
            for arm, share in zip(arms, shares, strict=True)
        }

    def _moved(self, trend: Trend | None, value: float) -> Trend:
        if trend is None:
            return Trend(value, value)
        return Trend(
            trend.fast + self._fast * (value - trend.fast),
            trend.slow + self._slow * (value - trend.slow),
        )
