"""Comparing rewards inside explicit groups, or with a mean that is carried over batches.

Also what all comparisons share: groups of equal keys, their spread, and the checks of what is compared.

Leaves out on purpose: step-level terms (`steps`) and what is normalised over a batch (`normalisation`).
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal

from mas.core.environment import LARGEST, is_bounded

Baseline = Literal["mean", "leave_one_out", "length_weighted", "best", "none"]
Scale = Literal["std", "none", "nonzero"]
Single = Literal["zero", "raw"]
EPS = 1e-6
"""Is added to a standard deviation before anything is divided by it."""
MOST = LARGEST**3
"""The largest absolute value that can be compared: advantages may be larger than rewards, and squares stay finite."""


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


@dataclass(slots=True)
class RunningBaseline:
    """An exponential moving mean of the reward per key, each read before it learns of the reward.

    A = R - b, then b <- decay b + (1 - decay) R; b starts at 0. The order of a batch matters, so it is given: labels
    that do not depend on which episode ended first. `means` is plain JSON and all there is to save.
    Source: SPIRAL, arXiv 2506.24119 (key: role, or game and role where several games are mixed).

    Raises:
        ValueError: `decay` is not in [0, 1).
    """

    decay: float = 0.95
    means: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"the decay of a running baseline must be at least 0 and below 1, not {self.decay}")

    def advantages(self, rewards: Sequence[float], keys: Sequence[str], order: Sequence[Any]) -> list[float]:
        """One advantage per reward, in the order of the rewards.

        Args:
            rewards: N scalars, one per key and trajectory: repeat a trajectory's result, not its reward.
            keys: N keys of baselines.
            order: N labels that can be compared with each other, e.g. episode ids; they say which reward comes first.

        Raises:
            ValueError: lengths differ, a reward is no number between -1e90 and 1e90, or two rewards of one key have the
                same label.
        """
        check_finite(rewards)
        check_lengths({"rewards": rewards, "keys": keys, "labels of order": order})
        _check_labels(keys, order)
        advantages = [0.0] * len(rewards)
        for i in sorted(range(len(rewards)), key=lambda index: order[index]):
            mean = self.means.get(keys[i], 0.0)
            advantages[i] = rewards[i] - mean
            self.means[keys[i]] = self.decay * mean + (1 - self.decay) * rewards[i]
        return advantages

    def state(self) -> Mapping[str, float]:
        """A copy of all baselines, for a checkpoint: `RunningBaseline(decay, dict(state))` restores them."""
        return dict(self.means)


def _check_labels(keys: Sequence[str], order: Sequence[Hashable]) -> None:
    seen = set()
    for place in zip(keys, order, strict=True):
        if place in seen:
            raise ValueError(f"two rewards of key {place[0]!r} have the label {place[1]!r}: their order is not given")
        seen.add(place)


def members(keys: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Key -> indices that have it, both in order of appearance."""
    found: dict[Hashable, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        found[key].append(index)
    return dict(found)


def std(values: Sequence[float], *, ddof: int = 1) -> float:
    """Standard deviation, the sample's by default. Exactly 0 for equal values; 0 for a single one.

    Raises:
        ValueError: a value is NaN, infinite or larger than 1e90 in absolute value.
    """
    check_finite(values, "values")
    if len(values) <= ddof or min(values) == max(values):
        return 0.0
    mean = fmean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - ddof))


def standardised(values: Sequence[float], *, ddof: int = 1) -> list[float]:
    """z = (x - mean) / (std + 1e-6). Exactly 0 for equal values and for a single one."""
    spread = std(values, ddof=ddof)
    if not spread:
        return [0.0] * len(values)
    mean = fmean(values)
    return [(value - mean) / (spread + EPS) for value in values]


def check_finite(values: Sequence[float], what: str = "rewards") -> None:
    """Refuse values that compare with nothing: with a NaN among them minima and orders depend on its place.

    Raises:
        ValueError: with the first one that is NaN, infinite or larger than 1e90 in absolute value, and its place.
    """
    for place, value in enumerate(values):
        if not is_bounded(value, MOST):
            raise ValueError(
                f"number {place} of {len(values)} {what} is {value}: only finite numbers can be compared, between "
                f"{-MOST:g} and {MOST:g}"
            )


def check_lengths(lists: Mapping[str, Sized]) -> None:
    """Refuse lists of different lengths. `lists`: plural name -> list; all are compared with the first.

    Raises:
        ValueError: with the names and lengths of the first two that differ.
    """
    first, *others = lists
    for other in others:
        if len(lists[first]) != len(lists[other]):
            raise ValueError(
                f"{len(lists[first])} {first} but {len(lists[other])} {other}: give as many of the one as of the other"
            )
