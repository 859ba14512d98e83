"""A simulation of asynchronous training: recorded durations in, makespan and idle time out. Pure functions, no torch.

The schedule is the strict pipeline of `train.staleness` = k. Version 0 serves at the start. Batch s (from 0) is
sampled under version max(0, s - k); it is issued when that version is published, batches 0 to k at the start. Update s
begins when batch s is complete and version s is published; it learns from batch s and publishes version s + 1. So at
most k + 1 batches are issued and not learned from yet. k = 0 is a loop of sampling, learning and publishing.

What is assumed of the machines:

* The learner has a machine of its own, and so have workers and replicas: nothing slows down beside another.
* A worker plays one group at a time and takes the next one of the oldest batch. A group takes `sample_s` seconds of a
  worker, and in `engine_s` of them an engine works for it, evenly over its whole time.
* A replica does one second of engine work a second, however many groups share it: what larger batches gain is not in
  the model. A group uses one replica at most. Older batches are served first; who gets less than it needs is slower.
* All replicas are published to at once. Evaluations, checkpoints and loading are left out.

Under these assumptions more workers, more replicas and more staleness are never slower.
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GroupWork:
    """What one group of a batch takes, in seconds. `engine_s` is a part of `sample_s`.

    Raises:
        ValueError: a number is negative or not finite, or the part is larger than the whole.
    """

    sample_s: float
    engine_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.engine_s <= self.sample_s < math.inf:
            raise ValueError(f"0 <= engine_s <= sample_s < inf must hold; they are {self.engine_s} and {self.sample_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """What one training step takes. `learn_s`: of the update; `publish_s`: to publish, as to one replica.

    Raises:
        ValueError: there is no group, or a number is negative or not finite.
    """

    groups: tuple[GroupWork, ...]
    learn_s: float
    publish_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.groups:
            raise ValueError("a step has at least one group")
        if not (0 <= self.learn_s < math.inf and 0 <= self.publish_s < math.inf):
            raise ValueError(f"learn_s={self.learn_s} and publish_s={self.publish_s} must be finite and not negative")

    @property
    def sample_s(self) -> float:
        """Seconds that one worker takes for all groups."""
        return sum(group.sample_s for group in self.groups)

    @property
    def engine_s(self) -> float:
        """Seconds that one replica works for all groups."""
        return sum(group.engine_s for group in self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """How far batches run ahead (k), and how many processes sample.

    Raises:
        ValueError: fewer than 0, or than 1 worker or replica.
    """

    staleness: int = 0
    workers: int = 1
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.staleness < 0 or self.workers < 1 or self.replicas < 1:
            raise ValueError(f"{self}: staleness from 0, workers and replicas from 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Seconds from the start: when a batch was issued and complete, and when its update was learned and published."""

    issued: float
    complete: float
    learned: float
    published: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """What the simulation of one shape gives. No number in it was measured.

    Attributes:
        makespan_s: from the start until the last version is published.
        speed_up: `sequential_s` over `makespan_s`. bound: what no staleness exceeds with these machines.
        learner_idle: share of the makespan in which nothing is learned; publishing counts as idle.
        engine_idle: mean share of a replica's time without engine work.
        worker_idle: mean share of a worker's time without a group, or lost by waiting for an engine that others use.
    """

    shape: ClusterShape
    makespan_s: float
    steps_per_hour: float
    speed_up: float
    bound: float
    learner_idle: float
    engine_idle: float
    worker_idle: float
    batches: tuple[BatchTimes, ...]


def split_step(
    *, sample_s: float, environment_s: float, learn_s: float, publish_s: float, shares: Sequence[float]
) -> StepWork:
    """A step of which only the whole was recorded, with its sampling split into groups.

    Args:
        sample_s: of the whole batch, `environment_s` of them in environments; the rest counts as engine work.
        shares: one positive number per group; its share of the sampling is this over their sum.

    Raises:
        ValueError: no share, or one that is not positive; seconds as in `GroupWork` and `StepWork`.
    """
    if not shares or not all(0 < share < math.inf for share in shares):
        raise ValueError(f"shares of groups must be positive numbers, at least one; they are {list(shares)}")
    engine_s = max(sample_s - environment_s, 0.0)
    parts = [share / sum(shares) for share in shares]
    groups = tuple(GroupWork(sample_s * part, engine_s * part) for part in parts)
    return StepWork(groups=groups, learn_s=learn_s, publish_s=publish_s)


def sequential_s(steps: Sequence[StepWork]) -> float:
    """Seconds of the loop: k = 0, one worker, one replica."""
    return sum(step.sample_s + step.learn_s + step.publish_s for step in steps)


def least_s(steps: Sequence[StepWork], shape: ClusterShape) -> float:
    """A bound of the makespan from below: the learner does all updates and publications, each worker and each replica
    at most its part of the sampling."""
    learner = sum(step.learn_s + step.publish_s for step in steps)
    workers = sum(step.sample_s for step in steps) / shape.workers
    engines = sum(step.engine_s for step in steps) / shape.replicas
    return max(learner, workers, engines)


def simulate(steps: Sequence[StepWork], shape: ClusterShape) -> Simulation:
    """Play the steps through the pipeline.

    Raises:
        ValueError: there are no steps, or they take no time.
    """
    whole_s = sequential_s(steps)
    if whole_s <= 0:
        raise ValueError("nothing to simulate: no step, or steps that take no time")
    pipeline = _Pipeline(steps, shape)
    pipeline.run()
    makespan_s = pipeline.now
    sampled_s, engine_s = (sum(getattr(step, name) for step in steps) for name in ("sample_s", "engine_s"))
    return Simulation(
        shape=shape,
        makespan_s=makespan_s,
        steps_per_hour=3600 * len(steps) / makespan_s,
        speed_up=whole_s / makespan_s,
        bound=whole_s / least_s(steps, shape),
        learner_idle=1 - sum(step.learn_s for step in steps) / makespan_s,
        engine_idle=1 - engine_s / shape.replicas / makespan_s,
        worker_idle=1 - sampled_s / shape.workers / makespan_s,
        batches=pipeline.times(),
    )


@dataclass(slots=True)
class _ActiveGroup:
    """A group that a worker plays. `left`: seconds of a worker; `rate`: of these per second."""

    batch: int
    left: float
    demand: float
    rate: float = 0.0


@dataclass(slots=True)
class _Pipeline:
    """The state of the simulation between two events. `version`: published updates."""

    steps: Sequence[StepWork]
    shape: ClusterShape
    now: float = 0.0
    version: int = 0
    active: list[_ActiveGroup] = field(default_factory=list)
    waiting: deque[_ActiveGroup] = field(default_factory=deque)
    issued: list[float] = field(default_factory=list)
    open_groups: list[int] = field(default_factory=list)
    complete: dict[int, float] = field(default_factory=dict)
    learned: list[float] = field(default_factory=list)
    published: list[float] = field(default_factory=list)
    learner_ends: list[float] = field(default_factory=list)
    """Moments at which the update in progress is learned, then published; empty: the learner waits."""

    def run(self) -> None:
        """To the publication of the last version."""
        while self.version < len(self.steps):
            self._issue()
            self._learn()
            self._assign()
            self._advance()

    def times(self) -> tuple[BatchTimes, ...]:
        """Of all batches, once they are published."""
        return tuple(
            BatchTimes(issued=issued, complete=self.complete[number], learned=learned, published=published)
            for number, (issued, learned, published) in enumerate(
                zip(self.issued, self.learned, self.published, strict=True)
            )
        )

    def _issue(self) -> None:
        while len(self.issued) < min(len(self.steps), self.version + self.shape.staleness + 1):
            number, groups = len(self.issued), self.steps[len(self.issued)].groups
            self.issued.append(self.now)
            self.open_groups.append(len(groups))
            for group in groups:
                demand = group.engine_s / group.sample_s if group.sample_s else 0.0
                self.waiting.append(_ActiveGroup(number, group.sample_s, demand))

    def _learn(self) -> None:
        if not self.learner_ends and self.version in self.complete:
            step = self.steps[self.version]
            learned = self.now + step.learn_s
            self.learner_ends = [learned, learned + step.publish_s]

    def _assign(self) -> None:
        """Give free workers the oldest groups, and engines to the oldest groups first."""
        while self.waiting and len(self.active) < self.shape.workers:
            self.active.append(self.waiting.popleft())
        free = float(self.shape.replicas)
        for group in self.active:
            group.rate = min(1.0, free / group.demand) if group.demand else 1.0
            free = max(free - group.rate * group.demand, 0.0)

    def _advance(self) -> None:
        """To the next end of a group, an update or a publication."""
        ends = [self.now + group.left / group.rate if group.rate > 0 else math.inf for group in self.active]
        then = min([*ends, *self.learner_ends[:1]])
        still_active = []
        for group, end in zip(self.active, ends, strict=True):
            if end <= then:
                self.open_groups[group.batch] -= 1
                if not self.open_groups[group.batch]:
                    self.complete[group.batch] = then
            else:
                group.left -= group.rate * (then - self.now)
                still_active.append(group)
        self.active, self.now = still_active, then
        while self.learner_ends and self.learner_ends[0] <= then:
            moment = self.learner_ends.pop(0)
            if self.learner_ends:
                self.learned.append(moment)
            else:
                self.published.append(moment)
                self.version += 1
