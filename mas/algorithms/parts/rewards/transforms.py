"""Reward transforms on plain numbers. Free of torch.

* Clip and Delta: step rewards whose sum cannot grow with the number of steps, so that repeating correct but useless
  steps does not pay. The result is to be added to the success reward. Source: On Designing Effective RL Reward at
  Training Time for LLM Reasoning, arXiv 2410.15115; the formulas are our reading, of the abstract.
* Progress: step rewards from a learned share of progress. Source: SPA-RL, arXiv 2505.20732. Leaves out on purpose: the
  estimator itself, a linear head on the last token of each turn. The published trainer weighs the last step's reward
  with 0; here it counts in full.
* Implicit: step rewards that need no labels, the log-ratio of an implicit process reward model to the policy's
  snapshot. Source: iStar, Online Process Reward Learning, arXiv 2509.19199. The gradient of the model's loss towards
  its Q values is in closed form, so that any learner can apply it.
* Partial credit for wrong answers that came near. Source: E-GRPO, Repurposing Synthetic Data, arXiv 2510.24694. Its
  value of alpha was not seen.
* A penalty that grows towards the end of the allowed length. Source: DAPO.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.core.options import NonNegative, Options, Positive, Selective, Share
from mas.core.records import Fact

Pooling = Literal["sum", "mean"]
Answer = Literal["correct", "wrong", "error"]
"""`error`: not in the form that was asked for, or longer than allowed."""


class RewardModelOptions(Selective):
    """In each step it learns which episodes succeeded, then says what each of their turns is paid.

    `kind`: `progress`, an estimate of each turn's share in the outcome (1 for a success, else 0), to which the shares
    add up; or `implicit`, `beta` x log(phi / policy) of the turn's tokens, where phi prefers successes to failures of
    one group, by the `pooling` of their turns. Either is an adapter like the policy's, never published.
    `bound`: `clip` leaves min(r - `eta`, 0) of each turn, `delta` what it is above the turn after it, `both` the one
    and then the other. `grounded` is added where an output parsed and the team's action was legal, and at the end.
    `joins`: the own term `model` is `added` to the others, is paid `alone`, or no reward has it and only
    `advantage.step.value=model` reads it (`step`).
    `lr` falls as the learner's does, `epochs` are passes over the whole batch; all else is the learner's.
    """

    kind: Literal["progress", "implicit"]
    joins: Literal["added", "alone", "step"] = "added"
    bound: Literal["none", "clip", "delta", "both"] = "none"
    eta: NonNegative = 0.0
    grounded: NonNegative = 0.0
    beta: Annotated[float, Field(gt=0)] = 0.05
    pooling: Pooling = "sum"
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4

    def unused_reason(self, name: str) -> str | None:
        if name in ("beta", "pooling") and self.kind != "implicit":
            return "only kind=implicit has it"
        if name == "eta" and self.bound not in ("clip", "both"):
            return "only bound=clip and bound=both take it off"
        return None


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


class PartialOptions(Options):
    """What wrong answers earn that came near: `alpha` x the share of the task's entities that were said, by the
    greatest share of the group; nothing where an output did not parse.

    `most`: of tokens that an agent says in an episode. Who says more earns none of it, stays in the group's statistics,
    and has no advantage; None: there is no bound.
    """

    alpha: Share = 0.3
    most: Positive | None = None


class EntityRate(Fact, frozen=True):
    """Of an episode. `share`: of the task's entities that stand in what was said; None: not asked."""

    share: float | None = None


def match_rate(text: str, entities: Sequence[str]) -> float:
    """The share of the distinct entities that stand in the text, letter by letter; a repeated one counts once.

    Raises:
        ValueError: there is no entity, or an empty one, which every text would hold.
    """
    distinct = set(entities)
    if not distinct or "" in distinct:
        raise ValueError(f"entities {list(entities)} cannot be matched: give one at least, and none empty")
    return sum(entity in text for entity in distinct) / len(distinct)


def entity_rewards(rates: Sequence[float], answers: Sequence[Answer], *, alpha: float) -> list[float]:
    """Of one group: 1 for a correct answer, alpha x rate / (the group's greatest rate) for a wrong one, else 0.

    Where no sample matched anything wrong answers get 0. The greatest rate is over all samples, errors included.

    Args:
        rates: `match_rate` of each sample's thoughts. alpha: 0 to 1, so that no wrong answer is worth more than a
            correct one.

    Raises:
        ValueError: the two lengths differ, a rate or alpha is outside of [0, 1].
    """
    if len(rates) != len(answers):
        raise ValueError(f"{len(rates)} rates but {len(answers)} answers: give one rate per answer")
    for name, value in [("alpha", alpha), *(("rate", rate) for rate in rates)]:
        if not 0 <= value <= 1:
            raise ValueError(f"{name} {value} is outside of [0, 1]")
    most = max(rates, default=0.0) or 1.0
    worth = {"correct": 1.0, "error": 0.0}
    return [worth.get(answer, alpha * (rate / most)) for rate, answer in zip(rates, answers, strict=True)]


class LengthOptions(Options):
    """A completion loses reward as it comes nearer than `margin` tokens to `most`, and 1 beyond it."""

    most: Positive
    margin: Positive

    @model_validator(mode="after")
    def _begins_with_a_token(self) -> Self:
        if self.margin > self.most:
            raise ValueError(
                f"margin={self.margin} is more than most={self.most}, so that even an empty completion would lose "
                "reward: lower margin, or raise most"
            )
        return self


def overlong_penalty(length: int, *, most: int, cache: int) -> float:
    """0 up to most - cache tokens, then (most - cache - length) / cache, -1 from `most` on.

    Source: DAPO, arXiv 2503.14476, section 3.4, soft over-long punishment.

    Args:
        length: tokens of the completion. most: L_max. cache: L_cache, tokens over which the penalty grows.

    Raises:
        ValueError: the length is negative, or `cache` is not from 1 to `most`.
    """
    if length < 0 or not 1 <= cache <= most:
        raise ValueError(f"length {length} with at most {most} and a cache of {cache}: 0 or more, and 1 to {most}")
    return -min(max(length - (most - cache), 0) / cache, 1.0)
