"""Most tasks from the arm where most changes: a bandit over arms whose reward is absolute learning progress.

Progress is the distance of two running means of what an arm's tasks brought, a fast and a slow one. Unlike the
difference of two steps it does not mistake the noise of a few tasks for learning; unlike its sign, an arm that is being
forgotten counts as much as one that is being learned.
Source: Kanitscheider et al., arXiv 2106.14876, section 3 (two running means); Portelas et al., arXiv 1910.07224 (its
absolute value).
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from random import Random
from statistics import fmean
from typing import Any, Literal

from mas.core.scenario import Pick, TaskOutcome
from mas.core.seeds import derive_seed
from mas.training.tasks.sources import Cursors


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
    """Draws an arm for every task: with probability `explore` any, else with a probability proportional to progress.

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
