"""Step rewards whose sum cannot grow with the number of steps: Clip and Delta.

So that repeating correct but useless steps does not pay. The result is to be added to the success reward.
Source: On Designing Effective RL Reward at Training Time for LLM Reasoning, arXiv 2410.15115; the formulas are our
reading, of the abstract.
"""

from collections.abc import Sequence


def clip_rewards(rewards: Sequence[float], eta: float) -> list[float]:
    """r'_k = min(r_k - eta, 0): no step earns anything, bad ones pay."""
    return [min(reward - eta, 0.0) for reward in rewards]


def delta_rewards(rewards: Sequence[float]) -> list[float]:
    """r'_k = r_k - r_{k+1}; the last but one keeps its own; the last gets 0.

    What follows from step k on, k included, sums to r_k (to 0 from the last step), however many steps there are.
    """
    if not rewards:
        return []
    inner = [*rewards[:-1], 0.0]
    return [here - after for here, after in zip(inner, [*inner[1:], 0.0], strict=True)]
