"""Comparing among trajectories of one structure, with a share of the comparison among all."""

from collections.abc import Hashable, Sequence

from mas.training.advantages.group import Scale, group_advantages
from mas.training.advantages.members import check_lengths


def stratified_advantages(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    strata: Sequence[Hashable],
    *,
    alpha: float = 1.0,
    scale: Scale = "std",
) -> list[float]:
    """A = alpha x (compared in group and stratum) + (1 - alpha) x (compared in the whole group).

    Without scale, reward - mean of group = (reward - mean of stratum) + (mean of stratum - mean of group): the last is
    the bias between strata that the first term leaves out. A stratum of one has only the group's share.
    Source: Stratified GRPO, arXiv 2510.06214 (stratum: e.g. the number of search calls).

    Args:
        rewards: of N trajectories. keys: their groups. strata: what each is like, e.g. its number of tool calls.
        alpha: 0 (no strata) to 1 (no comparison between them).

    Raises:
        ValueError: lengths differ, or alpha is outside [0, 1].
    """
    check_lengths({"rewards": rewards, "group keys": keys, "strata": strata})
    inside = group_advantages(rewards, list(zip(keys, strata, strict=True)), scale=scale)
    return blend(inside, group_advantages(rewards, keys, scale=scale), alpha)


def blend(first: Sequence[float], second: Sequence[float], alpha: float) -> list[float]:
    """alpha x first + (1 - alpha) x second.

    Raises:
        ValueError: lengths differ, or alpha is outside [0, 1].
    """
    check_lengths({"first advantages": first, "second advantages": second})
    if not 0 <= alpha <= 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha}")
    return [alpha * one + (1 - alpha) * other for one, other in zip(first, second, strict=True)]
