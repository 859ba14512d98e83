"""Step rewards from a learned share of progress: SPA-RL.

Source: arXiv 2505.20732. Leaves out on purpose: the estimator itself, a linear head on the last token of each turn.
The published trainer weighs the last step's reward with 0; here it counts in full.
"""

import math
from collections.abc import Sequence


def fused_rewards(contributions: Sequence[float], grounded: Sequence[bool], *, weight: float = 0.5) -> list[float]:
    """r_t = c_t + weight x g_t, with g_t = 1 where the action did something in the world; the last step's g is 1.

    Args:
        contributions: c_t, the estimated share of each of T steps in the outcome.

    Raises:
        ValueError: the two lengths differ.
    """
    if len(contributions) != len(grounded):
        raise ValueError(f"{len(contributions)} contributions but {len(grounded)} flags: give one per step")
    last = len(contributions) - 1
    return [
        contribution + weight * (is_grounded or step == last)
        for step, (contribution, is_grounded) in enumerate(zip(contributions, grounded, strict=True))
    ]


def estimator_loss(contributions: Sequence[float], outcome: float) -> float:
    """(sum of c_t - R)^2 of one trajectory: the contributions are to add up to its outcome.

    Raises:
        ValueError: there is no step.
    """
    if not contributions:
        raise ValueError("a trajectory without steps has no contributions to estimate")
    return (math.fsum(contributions) - outcome) ** 2
