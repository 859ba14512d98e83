"""From rewards and values of one trajectory to advantages of its tokens, and to what its critic is taught."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from mas.config.updates import Level
from mas.training.advantages.gae import bad, gae, split

Turns = list[list[float]]
"""Per turn a number per token; or of its first tokens only."""


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


def _advantages(rewards: Turns, values: Turns, level: Level, gamma: float, lam: float) -> Turns:
    if level == "bad":
        return bad(rewards, values, gamma=gamma, lam=lam)
    flat = gae(_flat(rewards), _flat(values), gamma=gamma, lam=lam)
    return split(flat, [len(turn) for turn in values])


def _flat(turns: Sequence[Sequence[float]]) -> list[float]:
    return [one for turn in turns for one in turn]


def _added(first: Turns, second: Turns) -> Turns:
    return [[a + b for a, b in zip(one, other, strict=True)] for one, other in zip(first, second, strict=True)]
