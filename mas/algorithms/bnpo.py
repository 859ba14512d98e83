"""BNPO, arXiv 2506.02864: the group's mean as baseline, divided by a Beta density that follows the success rates."""

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean, variance
from typing import Self

from pydantic import FiniteFloat, model_validator

from mas.algorithms.base import Algorithm, Recipe, Row
from mas.core.errors import TrainingError
from mas.core.naming import agent_of
from mas.core.options import Options

MOST_WEIGHT = 1e6
"""What 1 / density is at most, as in the authors' code."""
EQUAL = 1e-6
"""Rates that differ by less are equal: their distribution has no width that could be measured."""
ROUNDING = 1e-9
"""How far a reward may be outside of its range, since it is a sum of floats."""


class BnpoOptions(Options):
    """`low`, `high`: the least and the most that a row can be paid; in the paper 0 and 1, a failure and a success."""

    low: FiniteFloat = 0.0
    high: FiniteFloat = 1.0

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low={self.low:g} must be below high={self.high:g}")
        return self


def advantages(rows: Sequence[Row], options: BnpoOptions) -> list[float]:
    """A = (R - p) / f(p; 1 + a/3, 1 + b/3), where p is the mean reward of a group and f the density of a Beta
    distribution. Beta(a, b) has the mean and the variance of p over the groups of an agent in this batch (section 4);
    instances of a mapped agent are one agent.

    Raises:
        TrainingError: a reward is not between `low` and `high`.
    """
    rewards = [(row.reward - options.low) / (options.high - options.low) for row in rows]
    for row, reward in zip(rows, rewards, strict=True):
        if not -ROUNDING <= reward <= 1 + ROUNDING:
            raise TrainingError(
                f"algorithm=bnpo: a reward of {row.reward:g} is not between algorithm.options.low={options.low:g} and "
                f".high={options.high:g}: set them to the least and the most that algorithm.reward can pay"
            )
    rewards = [min(max(reward, 0.0), 1.0) for reward in rewards]
    members: dict[Hashable, list[float]] = defaultdict(list)
    groups_of: dict[str, dict[Hashable, None]] = defaultdict(dict)
    for row, reward in zip(rows, rewards, strict=True):
        members[row.group].append(reward)
        groups_of[agent_of(row.turns[0].agent)][row.group] = None
    rates = {group: fmean(own) for group, own in members.items()}
    shapes = {agent: shape_of([rates[group] for group in own]) for agent, own in groups_of.items()}
    return [
        (reward - rates[row.group]) * weight(rates[row.group], *shapes[agent_of(row.turns[0].agent)])
        for row, reward in zip(rows, rewards, strict=True)
    ]


def shape_of(rates: Sequence[float]) -> tuple[float, float]:
    """1 + a/3 and 1 + b/3 of the Beta(a, b) with the mean and the variance of these rates, at least 1 each.

    With one rate, or with equal ones, nothing is known of their distribution: 1 and 1, a density of 1 everywhere.
    """
    if max(rates) - min(rates) < EQUAL:
        return 1.0, 1.0
    mean = fmean(rates)
    total = mean * (1 - mean) / variance(rates) - 1
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
