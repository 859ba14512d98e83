"""What every turn added to the probability of the right answer, beside the outcome."""

from collections.abc import Hashable, Sequence

from mas.training.advantages.group import group_advantages
from mas.training.advantages.members import check_lengths
from mas.training.advantages.returns import differences, returns_to_go


def gain_advantages(
    knowledge: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    keys: Sequence[Hashable],
    *,
    gamma: float = 1.0,
) -> list[list[float]]:
    """Information gains and outcomes, each normalised in the group by itself, then added up discounted to the end.

    With p_0 before the first turn and p_t after turn t, the gain of turn t is p_t - p_(t-1), of all turns but the last,
    whose reward is the outcome. A_t = sum over k >= t of gamma^(k-t) z_k. Gains enter their statistics once per turn,
    outcomes once per trajectory; raw gains add up to p_last - p_0.
    Source: IGPO, arXiv 2510.14967: p is the probability of the answer, exp of the mean log-probability of its tokens
    (v1 and its code), or that mean itself (v2).

    Args:
        knowledge: of N trajectories, each turns x p: before any turn and after every turn but the last.
        outcomes: of each trajectory. keys: their groups.

    Returns:
        N x turns of that trajectory.

    Raises:
        ValueError: lengths differ, or a trajectory has no probability.
    """
    check_lengths({"trajectories with probabilities": knowledge, "outcomes": outcomes, "group keys": keys})
    empty = [index for index, values in enumerate(knowledge) if not values]
    if empty:
        raise ValueError(f"trajectories {empty} have no probability of the answer: give at least the one at start")
    gains = [differences(values) for values in knowledge]
    owners = [key for key, own in zip(keys, gains, strict=True) for _ in own]
    compared = iter(group_advantages([gain for own in gains for gain in own], owners))
    ends = group_advantages(outcomes, keys)
    rows = [[*(next(compared) for _ in own), end] for own, end in zip(gains, ends, strict=True)]
    return [returns_to_go(row, gamma) for row in rows]
