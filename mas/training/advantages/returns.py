"""From the rewards of a trajectory's steps, in order, to what each step is worth."""

from collections.abc import Sequence
from itertools import pairwise


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """G_t = sum over k >= t of gamma^(k-t) r_k. Source: GiGPO, arXiv 2505.10978."""
    carried = 0.0
    returns = []
    for reward in reversed(rewards):
        carried = reward + gamma * carried
        returns.append(carried)
    return returns[::-1]


def differences(values: Sequence[float]) -> list[float]:
    """v_(t+1) - v_t, one fewer than values: what each step changed; they add up to last - first.

    Source: information gain of IGPO, arXiv 2510.14967; improvement reward of WaltzRL, arXiv 2510.08240.
    """
    return [after - before for before, after in pairwise(values)]
