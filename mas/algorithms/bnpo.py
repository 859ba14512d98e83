"""BNPO, arXiv 2506.02864: the group's mean as baseline, divided by a Beta density that follows the success rates."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean, variance
from typing import Self

from pydantic import model_validator

from mas.algorithms.base import Algorithm, Recipe, Row
from mas.core.errors import TrainingError
from mas.core.options import Options

MOST_WEIGHT = 1e6
"""What 1 / density is at most, as in the authors' code."""


class BnpoOptions(Options):
    """`low`, `high`: the least and the most that a row can be paid; in the paper 0 and 1, a failure and a success."""

    low: float = 0.0
    high: float = 1.0

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        return self


def advantages(rows: Sequence[Row], options: BnpoOptions) -> list[float]:
    """A = (R - p) / f(p; 1 + a/3, 1 + b/3), where p is the mean reward of a group and f the density of a Beta
    distribution. Beta(a, b) has the mean and the variance of an agent's p in this batch (section 4).

    Raises:
        TrainingError: a reward is not between `low` and `high`.
    """
    rewards = [(row.reward - options.low) / (options.high - options.low) for row in rows]
    for row, reward in zip(rows, rewards, strict=True):
        if not 0 <= reward <= 1:
            raise TrainingError(
                f"algorithm=bnpo: a reward of {row.reward:g} is not between algorithm.options.low={options.low:g} and "
                f".high={options.high:g}: set them to the least and the most that algorithm.reward can pay"
            )
    groups: dict[str, dict[Hashable, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row, reward in zip(rows, rewards, strict=True):
        groups[row.turns[0].agent][row.group].append(reward)
    rates = {agent: {key: fmean(group) for key, group in own.items()} for agent, own in groups.items()}
    shapes = {agent: shape_of(list(own.values())) for agent, own in rates.items()}
    found = []
    for row, reward in zip(rows, rewards, strict=True):
        agent = row.turns[0].agent
        rate = rates[agent][row.group]
        found.append((reward - rate) * weight(rate, *shapes[agent]))
    return found


def shape_of(rates: Sequence[float]) -> tuple[float, float]:
    """1 + a/3 and 1 + b/3 of the Beta(a, b) with the mean and the variance of these rates, at least 1 each.

    With one rate, or with equal ones, nothing is known of their distribution: 1 and 1, a density of 1 everywhere.
    """
    spread = variance(rates) if len(rates) > 1 else 0.0
    if not spread:
        return 1.0, 1.0
    mean = fmean(rates)
    total = mean * (1 - mean) / spread - 1
    return max(1.0, 1 + total * mean / 3), max(1.0, 1 + total * (1 - mean) / 3)


def weight(rate: float, alpha: float, beta: float) -> float:
    """1 / density of Beta(alpha, beta) at the rate; 0 at rates of 0 and 1, where all rewards of the group are equal."""
    if not 0 < rate < 1:
        return 0.0
    log_area = math.lgamma(alpha) + math.lgamma(beta) - math.lgamma(alpha + beta)
    log_weight = log_area - (alpha - 1) * math.log(rate) - (beta - 1) * math.log1p(-rate)
    return math.exp(min(log_weight, math.log(MOST_WEIGHT)))


algorithm = Algorithm(
    recipe=Recipe(
        title="BNPO",
        paper="2506.02864",
        does="Each episode is compared with its group's mean, divided by a Beta density fitted to the success rates.",
        differs="the distribution is fitted to each agent's rates; rewards of several kinds are summed first",
    ),
    parts={"sampler": {"mode": "parallel"}, "reward": {"source": "outcome", "failure": 0.0}},
    options=BnpoOptions,
    advantages=advantages,
)
