"""Comparing rewards inside explicit groups.

Leaves out on purpose: baselines that are carried over batches, and step-level terms.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

EPS = 1e-6

Baseline = Literal["mean", "leave_one_out"]
Scale = Literal["std", "none"]
Single = Literal["zero", "raw"]


def group_advantages(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    single: Single = "zero",
) -> list[float]:
    """Compare every reward with the others of its own group.

    A_i = (r_i - b_g) / s_g. `mean`: b = mean of the group; `leave_one_out`: the mean of the others (RLOO).
    `std`: s = sample standard deviation (ddof 1) + 1e-6; `none`: s = 1 (Dr.GRPO, RLOO).
    A group of one gets 0 (`zero`: nothing to compare with) or its reward (`raw`).
    Equal rewards give exactly 0.

    Source: GRPO, arXiv 2402.03300, section 4.1; AT-GRPO, arXiv 2510.11062 (g = task, agent, turn, state);
    Dr.GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740.

    Args:
        rewards: N scalars. keys: N group keys.

    Raises:
        ValueError: the two lengths differ.
    """
    members = _members(rewards, keys)
    advantages = [0.0] * len(rewards)
    for indices in members.values():
        values = [rewards[i] for i in indices]
        if len(values) == 1:
            advantages[indices[0]] = values[0] if single == "raw" else 0.0
            continue
        if min(values) == max(values):
            continue
        mean = fmean(values)
        wider = len(values) / (len(values) - 1) if baseline == "leave_one_out" else 1.0
        divisor = _std(values, mean) + EPS if scale == "std" else 1.0
        for i in indices:
            advantages[i] = (rewards[i] - mean) * wider / divisor
    return advantages


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """How much a batch's groups have to teach. `spread`: mean over groups of the reward's standard deviation."""

    groups: int
    single: int
    zero_variance: int
    spread: float


def group_statistics(rewards: Sequence[float], keys: Sequence[Hashable]) -> GroupStatistics:
    """Counts of groups, of groups of one, and of groups whose rewards are all equal.

    Raises:
        ValueError: the two lengths differ.
    """
    groups = [[rewards[i] for i in indices] for indices in _members(rewards, keys).values()]
    compared = [values for values in groups if len(values) > 1]
    return GroupStatistics(
        groups=len(groups),
        single=len(groups) - len(compared),
        zero_variance=sum(min(values) == max(values) for values in compared),
        spread=fmean([_std(values, fmean(values)) for values in compared]) if compared else 0.0,
    )


def _members(rewards: Sequence[float], keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    if len(rewards) != len(keys):
        raise ValueError(f"{len(rewards)} rewards but {len(keys)} group keys: give one key per reward")
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        members[key].append(index)
    return members


def _std(values: Sequence[float], mean: float) -> float:
    """Sample standard deviation, ddof 1."""
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
