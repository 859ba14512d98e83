"""Which groups and tasks are worth training on, and which are drawn again.

Leaves out on purpose: choosing inside a group (`resample`) and where to branch (`branching`). Nothing is dropped
silently: every function returns what stays and what does not, or leaves the difference to be counted.
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, stdev
from typing import Generic, Literal, TypeVar

from mas.training.advantages.group import check_finite

Group = TypeVar("Group", bound=Hashable)
GroupFilter = Literal["mean", "std", "dapo"]


@dataclass(frozen=True, slots=True)
class Selected(Generic[Group]):
    """Group keys, both in the order in which they were given."""

    kept: tuple[Group, ...]
    dropped: tuple[Group, ...]


def drop_equal(groups: Mapping[Group, Sequence[float]]) -> Selected[Group]:
    """Drop groups whose rewards are all equal, groups of one included: they have nothing to teach.

    Source: DAPO, arXiv 2503.14476, section 3.2.

    Raises:
        ValueError: a group has no rewards, or one that is no number between -1e90 and 1e90.
    """
    return _split(groups, {key for key, rewards in groups.items() if _checked(key, rewards) and _is_equal(rewards)})


def filter_groups(groups: Mapping[Group, Sequence[float]], by: GroupFilter, *, share: float = 0.5) -> Selected[Group]:
    """AT-GRPO's filter of groups.

    `mean`, `std`: drop floor(share x groups) of them, those of the lowest mean reward, or of the lowest standard
    deviation (ddof 1; 0 for a group of one), of equals the later; `dapo`: drop the equal ones whatever the share.
    Source: the code of Stronger-MAS, arXiv 2510.11062: `mean` and 0.5.

    Raises:
        ValueError: a group has no rewards, or the share is outside of [0, 1).
    """
    if not 0 <= share < 1:
        raise ValueError(f"share {share} of groups to drop is outside of [0, 1)")
    if by == "dapo":
        return drop_equal(groups)
    values = {key: _value(by, _checked(key, rewards)) for key, rewards in groups.items()}
    keys = list(groups)
    order = sorted(range(len(keys)), key=lambda number: (values[keys[number]], -number))
    return _split(groups, {keys[number] for number in order[: math.floor(share * len(keys))]})


def solvable_tasks(accuracies: Mapping[Group, float], *, below: float = 0.75) -> Selected[Group]:
    """Keep tasks that less than such a share of the peers' proposals solves: the leader has something to add there.

    Source: MLPO, How to Train a Leader, arXiv 2507.08960: tasks with at least 75% correct proposals are dropped.

    Raises:
        ValueError: an accuracy is outside of [0, 1].
    """
    for task, accuracy in accuracies.items():
        if not 0 <= accuracy <= 1:
            raise ValueError(f"the accuracy of task {task!r} is {accuracy}; it must be from 0 to 1")
    return _split(accuracies, {task for task, accuracy in accuracies.items() if accuracy >= below})


def largest_multiple(count: int, ranks: int, seed: int) -> tuple[int, ...]:
    """Indices of the samples to keep so that every rank gets equally many: all but `count` modulo `ranks`.

    Which are left out is uniform (our reading), and depends on the seed alone; those kept stay in order. With fewer
    samples than ranks none is kept.
    Source: IterResearch, arXiv 2511.07327, adaptive down-sampling.

    Raises:
        ValueError: the count is negative, or there is no rank.
    """
    if count < 0 or ranks < 1:
        raise ValueError(f"{count} samples on {ranks} ranks: at least 0 and at least 1 are possible")
    return tuple(sorted(Random(seed).sample(range(count), count - count % ranks)))


def _split(groups: Mapping[Group, object], dropped: set[Group]) -> Selected[Group]:
    return Selected(tuple(key for key in groups if key not in dropped), tuple(key for key in groups if key in dropped))


def _checked(key: Hashable, rewards: Sequence[float]) -> Sequence[float]:
    if not rewards:
        raise ValueError(f"group {key!r} has no rewards: leave it out")
    check_finite(rewards)
    return rewards


def _is_equal(rewards: Sequence[float]) -> bool:
    return min(rewards) == max(rewards)


def _value(by: GroupFilter, rewards: Sequence[float]) -> float:
    if by == "mean":
        return fmean(rewards)
    return stdev(rewards) if len(rewards) > 1 else 0.0
