"""Step rewards that need no labels: the log-ratio of an implicit process reward model to the policy's snapshot.

Source: iStar, Online Process Reward Learning, arXiv 2509.19199. Numbers only: the gradient of the model's loss
towards its Q values is in closed form, so that any learner can apply it.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

Pooling = Literal["sum", "mean"]


def step_rewards(log_ratios: Sequence[Sequence[float]], *, beta: float = 0.05) -> list[float]:
    """r(step) = beta x sum over the step's tokens of (log phi - log old).

    Args:
        log_ratios: of T steps, one number in nats per token; phi is the reward model, old the policy that sampled.
    """
    return [beta * math.fsum(step) for step in log_ratios]


def trajectory_score(rewards: Sequence[float], pooling: Pooling = "sum") -> float:
    """Q of a trajectory: the `sum` of its step rewards (the paper), or their `mean` (its code).

    Raises:
        ValueError: there is no step.
    """
    if not rewards:
        raise ValueError("a trajectory without steps has no score")
    return math.fsum(rewards) if pooling == "sum" else fmean(rewards)


def preference_loss(successes: Sequence[float], failures: Sequence[float]) -> float | None:
    """Mean over all pairs of -log sigmoid(Q of the success - Q of the failure); None: there is no pair.

    Of one group of trajectories of one task. The mean over the pairs is our reading.
    """
    pairs = [good - bad for good in successes for bad in failures]
    return fmean(_softplus(-gap) for gap in pairs) if pairs else None


def preference_gradient(successes: Sequence[float], failures: Sequence[float]) -> tuple[list[float], list[float]]:
    """d `preference_loss` / d Q of each success and of each failure; all 0 where there is no pair."""
    pairs = max(len(successes) * len(failures), 1)
    push = [[_sigmoid(bad - good) / pairs for bad in failures] for good in successes]
    return [-math.fsum(row) for row in push], [math.fsum(row[n] for row in push) for n in range(len(failures))]


def _softplus(x: float) -> float:
    """log(1 + exp(x)), without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _sigmoid(x: float) -> float:
    return (1 + math.tanh(x / 2)) / 2
