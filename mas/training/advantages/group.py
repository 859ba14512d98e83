"""Comparing rewards inside explicit groups.

Leaves out on purpose: baselines that are carried over batches (`running`) and step-level terms (`steps`).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from mas.training.advantages.members import EPS, check_finite, check_lengths, members, std

Baseline = Literal["mean", "leave_one_out", "length_weighted", "best", "none"]
Scale = Literal["std", "none", "nonzero"]
Single = Literal["zero", "raw"]


def group_advantages(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    *,
    baseline: Baseline = "mean",
    scale: Scale = "std",
    single: Single = "zero",
    lengths: Sequence[int] | None = None,
) -> list[float]:
    """Compare every reward with the others of its own group.

    A_i = (r_i - b_g) / s_g. `mean`: b = mean of the group; `leave_one_out`: mean of the others (RLOO);
    `length_weighted`: sum of length x reward / sum of lengths (OPO); `best`: the best gets what it is above the
    second, all others 0 (Pass@k); `none`: b = 0, with which every group has its rewards as advantages.
    `std`: s = sample standard deviation (ddof 1) + 1e-6; `none`: s = 1 (Dr.GRPO, RLOO, OPO); `nonzero`: s = share of
    the whole batch's rewards that are not 0 (GPG), which makes advantages depend on other groups.
    A group of one gets 0 (`zero`: nothing to compare with) or its reward (`raw`).
    Equal rewards give exactly 0, but with `none`.

    Source: GRPO, arXiv 2402.03300, section 4.1; AT-GRPO, arXiv 2510.11062 (g = task, agent, turn, state);
    Dr.GRPO, arXiv 2503.20783; RLOO, arXiv 2402.14740; OPO, GPG and Pass@k as verl computes them.

    Args:
        rewards: N scalars. keys: N group keys. lengths: N counts of trained tokens, only read by `length_weighted`.

    Raises:
        ValueError: lengths of the lists differ; a reward is no number between -1e90 and 1e90; `length_weighted` without
            lengths of at least 1; `none` with `std`.
    """
    check_lengths({"rewards": rewards, "group keys": keys})
    check_finite(rewards)
    if baseline == "none" and scale == "std":
        raise ValueError("baseline=none compares nothing, so scale=std has no meaning: choose scale=none or nonzero")
    weights = _weights(rewards, lengths) if baseline == "length_weighted" else [1] * len(rewards)
    share = sum(reward != 0 for reward in rewards) / len(rewards) if scale == "nonzero" and any(rewards) else 1.0
    advantages = [0.0] * len(rewards)
    for indices in members(keys).values():
        values = [rewards[i] for i in indices]
        if len(values) == 1 and baseline != "none":
            differences = values if single == "raw" else [0.0]
            divisor = 1.0
        else:
            differences = _differences(values, [weights[i] for i in indices], baseline)
            divisor = std(values) + EPS if scale == "std" else share
        for i, difference in zip(indices, differences, strict=True):
            advantages[i] = difference / divisor
    return advantages


def _weights(rewards: Sequence[float], lengths: Sequence[int] | None) -> Sequence[int]:
    if lengths is None:
        raise ValueError("baseline=length_weighted needs the number of trained tokens of every row: give lengths")
    check_lengths({"rewards": rewards, "lengths": lengths})
    if lengths and min(lengths) < 1:
        raise ValueError(f"a row has length {min(lengths)}, but baseline=length_weighted needs 1 or more of each")
    return lengths


def _differences(values: Sequence[float], weights: Sequence[int], baseline: Baseline) -> list[float]:
    """r - b of a group of more than one (or of any, with `none`)."""
    if baseline == "none":
        return list(values)
    if min(values) == max(values):
        return [0.0] * len(values)
    if baseline == "best":
        best, second = sorted(values, reverse=True)[:2]
        return [best - second if value == best else 0.0 for value in values]
    mean = sum(w * value for w, value in zip(weights, values, strict=True)) / sum(weights)
    if baseline == "length_weighted":
        return [value - mean for value in values]
    mean = fmean(values)
    wider = len(values) / (len(values) - 1) if baseline == "leave_one_out" else 1.0
    return [(value - mean) * wider for value in values]


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """One group of a batch. `variance`: the sample's (ddof 1), 0 for one alone; `dropped`: why it teaches nothing."""

    size: int
    mean: float
    variance: float
    dropped: Literal["single", "equal"] | None


@dataclass(frozen=True, slots=True)
class GroupStatistics:
    """How much a batch's groups have to teach. `spread`: mean over groups of the reward's standard deviation."""

    groups: int
    single: int
    zero_variance: int
    spread: float


def groups_of(values: Sequence[float], keys: Sequence[Hashable]) -> dict[Hashable, GroupSummary]:
    """Size, variance and what becomes of every group, for any values and keys that are compared.

    Raises:
        ValueError: the two lengths differ, or a value is no number between -1e90 and 1e90.
    """
    check_lengths({"rewards": values, "group keys": keys})
    check_finite(values)
    found = {}
    for key, indices in members(keys).items():
        own = [values[i] for i in indices]
        equal: Literal["equal"] | None = "equal" if min(own) == max(own) else None
        found[key] = GroupSummary(len(own), fmean(own), std(own) ** 2, "single" if len(own) == 1 else equal)
    return found


def group_statistics(rewards: Sequence[float], keys: Sequence[Hashable]) -> GroupStatistics:
    """Counts of groups, of groups of one, and of groups whose rewards are all equal.

    Raises:
        ValueError: the two lengths differ.
    """
    groups = groups_of(rewards, keys).values()
    spreads = [group.variance**0.5 for group in groups if group.dropped != "single"]
    return GroupStatistics(
        groups=len(groups),
        single=len(groups) - len(spreads),
        zero_variance=sum(group.dropped == "equal" for group in groups),
        spread=fmean(spreads) if spreads else 0.0,
    )
