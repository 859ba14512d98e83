"""Generalised advantage estimation over tokens, over turns, and over tokens inside turns, and what a critic is taught.

Leaves out on purpose: bootstrapping behind the end. A trajectory ends with its episode, where V is 0. Free of torch.

A trajectory is all that one agent said in one episode: turns of tokens, with one reward and one value V each; V is
read before the token (or the turn) is drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Literal

from pydantic import Field

from mas.algorithms.parts.advantages.group import EPS
from mas.core.errors import TrainingError
from mas.core.options import NonNegative, Options, Positive

Level = Literal["token", "turn", "bad"]
Turns = list[list[float]]
"""Per turn a number per token; or of its first tokens only."""


class CriticOptions(Options):
    """A value function per trained adapter: an adapter of the same shape and a linear head, never published.

    `level`: whose advantages; of each token (`token`, PPO), one per turn (`turn`), or of each token where only turns
    are discounted (`bad`, POAD). `gamma` and `lam` are those of generalised advantage estimation. `whiten`: the
    advantages of an adapter's tokens get mean 0 and standard deviation 1 in each step.

    `lr` falls as the learner's does, `epochs` are passes over the batch, in `minibatches` optimiser steps each; betas,
    weight decay and the bound of the gradient are the learner's. `clip`: a value counts as moved from the one before
    the step by this at most, where that makes the loss greater; None: no bound.
    """

    level: Level = "token"
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    whiten: bool = True
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4
    minibatches: Positive = 4
    clip: NonNegative | None = None

    def unused_reason(self, name: str, *, is_tree: bool) -> str | None:
        between_turns = {"token": (), "bad": ("gamma",), "turn": ("gamma", "lam")}
        if is_tree and name in between_turns[self.level]:
            return "in tree sampling a trajectory is one turn, so nothing is discounted from turn to turn"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a trajectory teaches.

    Attributes:
        advantages: per turn, one per token.
        targets: what V should have been at the first tokens of each turn, the lambda-return: at all of them, or with
            level=turn at the first alone.
        returns: what was paid from there on, discounted, at the same tokens; no value enters it.
    """

    advantages: Turns
    targets: Turns
    returns: Turns


def estimate(rewards: Turns, values: Turns, *, level: Level, gamma: float, lam: float) -> Estimate:
    """Advantages by `gae` over all tokens, by `bad`, or by `gae` over turns, which gives all tokens of a turn one.

    A turn's reward is the sum of its tokens', its value that of its first token: the state in which it began.

    Args:
        rewards, values: per turn of one agent in one episode, in order, one number per token.

    Raises:
        TrainingError: turns or tokens of the two differ in number, or (level=bad) a turn has no token.
    """
    lengths = [len(turn) for turn in values]
    if level == "turn":
        rewards, values = [[math.fsum(turn)] for turn in rewards], [turn[:1] for turn in values]
    advantages = _advantages(rewards, values, level, gamma, lam)
    found = Estimate(
        advantages=advantages,
        targets=_added(advantages, values),
        returns=_added(_advantages(rewards, values, level, gamma, 1.0), values),
    )
    if level == "turn":
        shared = [turn * length for turn, length in zip(advantages, lengths, strict=True)]
        return Estimate(advantages=shared, targets=found.targets, returns=found.returns)
    return found


def gae(rewards: Sequence[float], values: Sequence[float], *, gamma: float, lam: float) -> list[float]:
    """delta_t = r_t + gamma V_(t+1) - V_t; A_t = delta_t + gamma lambda A_(t+1); behind the end V = A = 0.

    A step is a token, or a turn: then this is the turn-level estimate, one advantage per turn (our reading).
    A_t + V_t is the lambda-return, which a critic is taught; with lambda = 1 it is the discounted sum of rewards.
    Source: GAE, arXiv 1506.02438, equation 16; over turns: Turn-PPO, arXiv 2512.17008.

    Args:
        rewards, values: one number per step.

    Raises:
        TrainingError: the two lengths differ.
    """
    return _backwards(rewards, values, [gamma] * len(values), lam)


def bad(
    rewards: Sequence[Sequence[float]], values: Sequence[Sequence[float]], *, gamma: float, lam: float
) -> list[list[float]]:
    """Bellman backup with action decomposition: as `gae` over all tokens, but gamma counts turns, not tokens.

    Inside a turn delta = r + V' - V and A = delta + lambda A'; only from its last token to the first of the next turn
    gamma discounts. So the horizon does not depend on how many tokens a turn has; with one token per turn it is `gae`.
    Source: POAD, arXiv 2405.15821. Rewards inside a turn (a KL per token) are our reading: there they are 0.

    Args:
        rewards, values: per turn, one number per token; no turn is empty.

    Raises:
        TrainingError: turns or tokens of the two differ in number, or a turn has no token.
    """
    lengths = [len(turn) for turn in values]
    if [len(turn) for turn in rewards] != lengths or 0 in lengths:
        raise TrainingError(
            f"turns of {[len(turn) for turn in rewards]} rewards and {lengths} values: give each token one of each, "
            "and each turn one token at least"
        )
    discounts = [factor for length in lengths for factor in (*[1.0] * (length - 1), gamma)]
    flat = _backwards([r for turn in rewards for r in turn], [v for turn in values for v in turn], discounts, lam)
    return split(flat, lengths)


def token_rewards(reward: float, penalties: Sequence[float]) -> list[float]:
    """What each token of a turn is paid: minus its own penalty, and the turn's reward on the last token.

    Source: PPO of language models, arXiv 1909.08593, equation 2; as CORY, arXiv 2410.06101, has it.

    Args:
        penalties: one per token, beta (log pi - log ref) for a KL in the reward; 0 for none.
    """
    return [*(-penalty for penalty in penalties[:-1]), reward - penalties[-1]]


def whitened(advantages: Sequence[float]) -> list[float]:
    """(A - mean) / (std + 1e-6), ddof 1. Equal numbers, or one alone, give exactly 0: there is nothing to compare.

    Not `standardised`, which refuses numbers that are not finite: a critic's are left for the loss to report.
    """
    if not advantages or min(advantages) == max(advantages):
        return [0.0] * len(advantages)
    mean = fmean(advantages)
    std = math.sqrt(math.fsum((one - mean) ** 2 for one in advantages) / (len(advantages) - 1))
    return [(one - mean) / (std + EPS) for one in advantages]


def explained_variance(values: Sequence[float], returns: Sequence[float]) -> float:
    """1 - Var(return - V) / Var(return): 1 where V is the return up to a constant, 0 where it says nothing.

    Negative where V is worse than a constant. 0 where all returns are equal: there is nothing to explain.
    """
    if not returns or min(returns) == max(returns):
        return 0.0
    errors = [wanted - value for value, wanted in zip(values, returns, strict=True)]
    return 1 - _variance(errors) / _variance(returns)


def split(numbers: Sequence[float], lengths: Sequence[int]) -> list[list[float]]:
    """One list cut into pieces of these lengths, which add up to its own."""
    stops = [sum(lengths[:place]) for place in range(len(lengths) + 1)]
    return [list(numbers[start:stop]) for start, stop in pairwise(stops)]


def _backwards(
    rewards: Sequence[float], values: Sequence[float], discounts: Sequence[float], lam: float
) -> list[float]:
    """`gae` with a discount of its own behind each step."""
    if len(rewards) != len(values):
        raise TrainingError(f"{len(rewards)} rewards but {len(values)} values: give one of each per step")
    advantages = [0.0] * len(values)
    after = advantage = 0.0
    for place in reversed(range(len(values))):
        advantage = rewards[place] + discounts[place] * (after + lam * advantage) - values[place]
        advantages[place] = advantage
        after = values[place]
    return advantages


def _variance(numbers: Sequence[float]) -> float:
    mean = fmean(numbers)
    return fmean((one - mean) ** 2 for one in numbers)


def _advantages(rewards: Turns, values: Turns, level: Level, gamma: float, lam: float) -> Turns:
    if level == "bad":
        return bad(rewards, values, gamma=gamma, lam=lam)
    flat = gae(_flat(rewards), _flat(values), gamma=gamma, lam=lam)
    return split(flat, [len(turn) for turn in values])


def _flat(turns: Sequence[Sequence[float]]) -> list[float]:
    return [one for turn in turns for one in turn]


def _added(first: Turns, second: Turns) -> Turns:
    return [[a + b for a, b in zip(one, other, strict=True)] for one, other in zip(first, second, strict=True)]
