"""One turn's reward spread over its tokens, with the KL in it. Free of torch."""

from collections.abc import Sequence


def token_rewards(reward: float, log_ratios: Sequence[float], beta: float) -> list[float]:
    """-beta x (log pi - log ref) at every token, and the turn's reward on top at the last one.

    What follows from token j on, j included, sums to CoMAS's A_j = r - beta sum over k >= j of the log ratios
    (arXiv 2510.08529). Source: CORY, arXiv 2410.06101; Ziegler et al., arXiv 1909.08593.

    Args:
        log_ratios: log pi - log ref of each of the turn's tokens, in nats.

    Raises:
        ValueError: the turn has no token to put the reward on.
    """
    if not log_ratios:
        raise ValueError("a turn without tokens has none to put its reward on")
    rewards = [-beta * ratio for ratio in log_ratios]
    rewards[-1] += reward
    return rewards
