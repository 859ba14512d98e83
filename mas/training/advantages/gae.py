"""Generalised advantage estimation over tokens, over turns, and over tokens inside turns. Free of torch.

Leaves out on purpose: bootstrapping behind the end. A trajectory ends with its episode, where V is 0.

A trajectory is all that one agent said in one episode: turns of tokens, with one reward and one value V each; V is
read before the token (or the turn) is drawn.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from mas.core.errors import TrainingError

EPS = 1e-6


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
    """(A - mean) / (std + 1e-6), ddof 1. Equal numbers, or one alone, give exactly 0: there is nothing to compare."""
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
