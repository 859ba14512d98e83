"""The simulation of asynchronous training: schedules computed by hand, and what must hold of all of them."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.training.simulation import (
    BatchTimes,
    ClusterShape,
    GroupWork,
    StepWork,
    least_s,
    sequential_s,
    simulate,
    split_step,
)


def step(
    sample_s: float, learn_s: float, *, publish_s: float = 0.0, environment_s: float = 0.0, groups: int = 1
) -> StepWork:
    return split_step(
        sample_s=sample_s, environment_s=environment_s, learn_s=learn_s, publish_s=publish_s, shares=[1.0] * groups
    )


def shape(staleness: int = 0, workers: int = 1, replicas: int = 1) -> ClusterShape:
    return ClusterShape(staleness=staleness, workers=workers, replicas=replicas)


def times(*rows: tuple[float, float, float, float]) -> tuple[BatchTimes, ...]:
    return tuple(BatchTimes(issued=a, complete=b, learned=c, published=d) for a, b, c, d in rows)


def resident_versions(batches: Sequence[BatchTimes], staleness: int, *, until_published: bool) -> int:
    """The most versions of one adapter that an engine must hold at one time in a simulated run.

    These are the newest published version, the next one from the moment it is learned (it is loaded and proven beside
    the newest), and those that batches in flight are pinned to.

    Args:
        until_published: a batch holds its version until its update is published; otherwise until it is complete.
    """
    held: dict[int, tuple[float, float]] = {0: (0.0, batches[0].published)}
    for number, batch in enumerate(batches):
        after = batches[number + 1].published if number + 1 < len(batches) else math.inf
        held[number + 1] = (batch.learned, after)
    for number, batch in enumerate(batches):
        version = max(0, number - staleness)
        begin, end = held[version]
        held[version] = (begin, max(end, batch.published if until_published else batch.complete))
    moments = [begin for begin, _ in held.values()]
    return max(sum(begin <= moment < end for begin, end in held.values()) for moment in moments)


def test_without_staleness_and_with_one_worker_it_takes_the_recorded_time() -> None:
    steps = [step(5.0, 2.5, publish_s=0.5, environment_s=1.0, groups=7), step(3.0, 4.0, publish_s=0.25, groups=3)]
    found = simulate(steps, shape())
    assert sequential_s(steps) == pytest.approx(5 + 2.5 + 0.5 + 3 + 4 + 0.25)
    assert found.makespan_s == pytest.approx(sequential_s(steps), rel=1e-12)
    assert found.speed_up == pytest.approx(1)


def test_a_schedule_of_staleness_1_is_the_one_computed_by_hand() -> None:
    # Sampling takes 2, learning 3, publishing 1. Batches 0 and 1 are there at the start: complete at 2 and 4. Update 0
    # from 2 to 5, published at 6: batch 2 is issued, complete at 8. Update 1 from 6 to 9, published at 10: batch 3 is
    # issued, complete at 12. Update 2 from 10 to 13, 14; update 3 from 14 to 17, 18.
    found = simulate([step(2, 3, publish_s=1) for _ in range(4)], shape(1))
    assert found.batches == times((0, 2, 5, 6), (0, 4, 9, 10), (6, 8, 13, 14), (10, 12, 17, 18))
    assert (found.makespan_s, found.speed_up) == (18, 24 / 18)
    assert found.steps_per_hour == 4 * 3600 / 18
    # 12 of 18 seconds are learned; 8 are sampled, all of it engine work.
    assert found.learner_idle == pytest.approx(1 / 3)
    assert found.engine_idle == pytest.approx(1 - 8 / 18)
    assert found.worker_idle == found.engine_idle


def test_a_schedule_of_staleness_2_is_the_one_computed_by_hand() -> None:
    # Sampling takes 4, learning 1. Batches 0 to 2 at the start, one after another: complete at 4, 8, 12. Update 0 at 5
    # issues batch 3, which the worker begins at 12, complete at 16; update 3 ends at 17. Sampling never stops.
    steps = [step(4, 1) for _ in range(4)]
    found = simulate(steps, shape(2))
    assert found.batches == times((0, 4, 5, 5), (0, 8, 9, 9), (0, 12, 13, 13), (5, 16, 17, 17))
    # With staleness 1 batch 2 is issued at 5 and waits for the worker until 8: the same times.
    assert simulate(steps, shape(1)).makespan_s == 17
    # Two workers and two replicas play batches 0 and 1 from 0 to 4, batch 2 from 4 to 8, batch 3 from 5 to 9.
    found = simulate(steps, shape(2, 2, 2))
    assert found.batches == times((0, 4, 5, 5), (0, 4, 6, 6), (0, 8, 9, 9), (5, 9, 10, 10))


def test_groups_of_a_batch_are_spread_over_workers_until_the_engine_is_saturated() -> None:
    # Six groups of 2 seconds, of which 1 is engine work: one replica keeps two workers at full speed.
    steps = [step(12, 3, environment_s=6, groups=6)]
    sampled = {workers: simulate(steps, shape(0, workers)).batches[0].complete for workers in (1, 2, 3, 6)}
    assert sampled == {1: 12, 2: 6, 3: 6, 6: 6}
    # Four workers take two rounds of 2 seconds, which two replicas are enough for; three replicas change nothing.
    assert simulate(steps, shape(0, 4, 2)).batches[0].complete == 4
    assert simulate(steps, shape(0, 4, 3)).batches[0].complete == 4


def test_the_longest_group_is_waited_for() -> None:
    uneven = split_step(sample_s=8, environment_s=8, learn_s=1, publish_s=0, shares=[1, 1, 1, 5])
    assert [group.sample_s for group in uneven.groups] == [1, 1, 1, 5]
    # The first worker plays groups 1 and 3, the second 2 and then the long one, from 1 to 6.
    assert simulate([uneven], shape(0, 2)).batches[0].complete == 6
    assert simulate([uneven], shape(0, 8)).batches[0].complete == 5


def test_an_older_batch_is_served_before_a_newer_one() -> None:
    # Both batches are at two workers at once; all is engine work of one replica. The older one is not slowed down.
    found = simulate([step(2, 5), step(2, 1)], shape(1, 2))
    assert [batch.complete for batch in found.batches] == [2, 4]


def test_all_replicas_are_published_to_at_once() -> None:
    assert simulate([step(1, 1, publish_s=0.5)], shape(0, 1, 4)).makespan_s == 1 + 1 + 0.5


seconds = st.floats(0, 50).map(lambda value: round(value, 3))


@st.composite
def runs(draw: st.DrawFn) -> list[StepWork]:
    """Up to six steps of up to five uneven groups; the first one takes time."""
    found = []
    for _ in range(draw(st.integers(1, 6))):
        samples = draw(st.lists(seconds, min_size=1, max_size=5))
        groups = tuple(GroupWork(whole, whole * draw(st.sampled_from((0.0, 0.3, 0.5, 1.0)))) for whole in samples)
        found.append(StepWork(groups=groups, learn_s=draw(seconds), publish_s=draw(seconds)))
    return [StepWork(groups=(*found[0].groups, GroupWork(1.0, 0.5)), learn_s=1.0), *found[1:]]


shapes = st.builds(shape, st.integers(0, 4), st.integers(1, 5), st.integers(1, 3))
SLACK = 1 + 1e-9
"""For rounding of sums."""


@given(runs(), shapes)
def test_what_is_bounded_stays_within_its_bounds(steps: list[StepWork], shape: ClusterShape) -> None:
    found = simulate(steps, shape)
    assert found.makespan_s * SLACK >= least_s(steps, shape)
    assert found.speed_up <= found.bound * SLACK
    longest = max(group.sample_s for one in steps for group in one.groups)
    assert found.makespan_s * SLACK >= longest
    for idle in (found.learner_idle, found.engine_idle, found.worker_idle):
        assert -1e-9 <= idle <= 1
    assert simulate(steps, ClusterShape()).makespan_s == pytest.approx(sequential_s(steps))
    assert found.makespan_s <= sequential_s(steps) * SLACK


@given(runs(), shapes)
def test_more_workers_more_replicas_and_more_staleness_are_never_slower(
    steps: list[StepWork], shape: ClusterShape
) -> None:
    before = simulate(steps, shape)
    for more in (
        ClusterShape(staleness=shape.staleness, workers=shape.workers + 1, replicas=shape.replicas),
        ClusterShape(staleness=shape.staleness, workers=shape.workers, replicas=shape.replicas + 1),
        ClusterShape(staleness=shape.staleness + 1, workers=shape.workers, replicas=shape.replicas),
    ):
        after = simulate(steps, more)
        assert after.makespan_s <= before.makespan_s * SLACK
        assert all(
            late.complete <= early.complete * SLACK for late, early in zip(after.batches, before.batches, strict=True)
        )


@given(runs(), shapes)
def test_the_pipeline_is_the_one_that_staleness_means(steps: list[StepWork], shape: ClusterShape) -> None:
    batches, k = simulate(steps, shape).batches, shape.staleness
    published = [0.0, *(batch.published for batch in batches)]
    for number, batch in enumerate(batches):
        assert batch.issued == published[max(0, number - k)], "as soon as its version is published"
        begun = max(batch.complete, published[number])
        assert batch.learned == pytest.approx(begun + steps[number].learn_s), "no update waits without need"
        in_flight = [other for other in batches if other.issued <= batch.issued < other.published]
        assert len(in_flight) <= k + 1
    assert all(first.published <= second.published for first, second in pairwise(batches))


@pytest.mark.parametrize("k", range(5))
def test_no_staleness_exceeds_sampling_and_learning_over_the_longer_of_them(k: int) -> None:
    # (learn + sample) / max(learn, sample) = 5 / 3; with 400 steps the first sampling is next to nothing.
    found = simulate([step(2, 3) for _ in range(400)], shape(k))
    assert found.bound == pytest.approx(5 / 3)
    assert found.speed_up <= 5 / 3
    assert found.speed_up == pytest.approx(5 / 3 if k else 1, rel=1e-2)


@given(runs(), shapes)
def test_no_more_versions_are_held_than_the_formulas_say(steps: list[StepWork], shape: ClusterShape) -> None:
    batches, k = simulate(steps, shape).batches, shape.staleness
    assert resident_versions(batches, k, until_published=False) <= max(k + 1, 2)
    assert resident_versions(batches, k, until_published=True) <= k + 2


@pytest.mark.parametrize("k", range(5))
@pytest.mark.parametrize("slow", ["sampling", "learning"])
def test_the_formulas_of_versions_are_reached(k: int, slow: str) -> None:
    # A batch that is complete has given its version back before the next one is learned; k = 0 has the version that
    # serves and the one that is proven beside it.
    sample_s, learn_s = (5, 1) if slow == "sampling" else (1, 5)
    batches = simulate([step(sample_s, learn_s, publish_s=1) for _ in range(20)], shape(k)).batches
    assert resident_versions(batches, k, until_published=True) == k + 2
    if slow == "sampling":
        assert resident_versions(batches, k, until_published=False) == max(k + 1, 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GroupWork(1.0, 2.0), "engine_s <= sample_s"),
        (lambda: GroupWork(math.nan, 0.0), "engine_s <= sample_s"),
        (lambda: StepWork(groups=(), learn_s=1.0), "at least one group"),
        (lambda: StepWork(groups=(GroupWork(1, 1),), learn_s=-1.0), "must be finite and not negative"),
        (lambda: ClusterShape(workers=0), "workers and replicas from 1"),
        (lambda: step(1, 1, groups=0), "shares of groups must be positive"),
        (lambda: simulate([], ClusterShape()), "nothing to simulate"),
        (lambda: simulate([step(0, 0)], ClusterShape()), "nothing to simulate"),
    ],
)
def test_what_cannot_be_simulated_is_refused(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]
