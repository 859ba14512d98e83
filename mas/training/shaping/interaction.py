"""What agents pay each other: a shared sum, and a task that is as good as it is hard to solve."""

import math
from collections.abc import Sequence
from typing import Literal

ProposerMode = Literal["failure", "intermediate"]


def shared_sum(rewards: Sequence[float]) -> list[float]:
    """Everybody gets the sum of all rewards. Source: CORY, arXiv 2410.06101 (pioneer and observer: r1 + r2)."""
    return [math.fsum(rewards)] * len(rewards)


def proposer_reward(
    outcomes: Sequence[float],
    *,
    mode: ProposerMode = "failure",
    is_valid: bool = True,
    invalid: float = 0.0,
    left: float = 0.0,
    right: float = 1.0,
) -> float:
    """What a proposed task is worth to its proposer, from the n outcomes (0 to 1) of those who tried to solve it.

    p = mean outcome. `failure`: 1 - p. `intermediate`: 4 (left + p)(right - p) for 0 < p < 1, else 0: best at half
    where left = 0 and right = 1. `invalid` where the task failed its check, whatever the outcomes: then it need not
    have been tried.
    Source: Search Self-Play, arXiv 2510.18821; 0 and -1 are used for `invalid`.

    Raises:
        ValueError: a valid task without outcomes, or an outcome outside of [0, 1].
    """
    if not is_valid:
        return invalid
    if not outcomes:
        raise ValueError("a valid task has no outcomes: let it be tried once at least, or give is_valid=False")
    outside = [outcome for outcome in outcomes if not 0 <= outcome <= 1]
    if outside:
        raise ValueError(f"outcome {outside[0]} of a proposed task is outside of [0, 1]")
    solved = math.fsum(outcomes) / len(outcomes)
    if mode == "failure":
        return 1.0 - solved
    return 4 * (left + solved) * (right - solved) if 0 < solved < 1 else 0.0
