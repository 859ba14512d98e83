"""From the rewards of a trajectory's steps, in order, to what each step is worth."""

from collections.abc import Sequence
from itertools import pairwise

from mas.training.advantages.members import check_lengths


def returns_to_go(rewards: Sequence[float], gamma: float = 1.0) -> list[float]:
    """G_t = sum over k >= t of gamma^(k-t) r_k. Source: GiGPO, arXiv 2505.10978."""
    carried = 0.0
    returns = []
    for reward in reversed(rewards):
        carried = reward + gamma * carried
        returns.append(carried)
    return returns[::-1]


def by_distance(outcome: float, steps: int, gamma: float) -> list[float]:
    """gamma^(steps to the end) x outcome: the last step gets all of it, earlier ones less, in long runs least.

    Source: efficiency-aware rewards of IterResearch (EAPO), arXiv 2511.07327.
    """
    return [outcome * gamma ** (steps - 1 - step) for step in range(steps)]


def matched_returns(rewards: Sequence[float], matched: Sequence[bool], gamma: float = 0.5) -> list[float]:
    """Returns within runs of steps that match the expert's; a step that does not ends a run and stays by itself.

    G_t = r_t + gamma G_(t+1) where steps t and t+1 both match, else r_t: no credit crosses a step that was patched.
    Source: UI-S1, arXiv 2509.11543, semi-online return.

    Raises:
        ValueError: the two lengths differ.
    """
    check_lengths({"rewards": rewards, "marks of a match": matched})
    carried = 0.0
    returns = []
    for reward, match in zip(reversed(rewards), reversed(matched), strict=True):
        returns.append(reward + gamma * carried if match else reward)
        carried = returns[-1] if match else 0.0
    return returns[::-1]


def differences(values: Sequence[float]) -> list[float]:
    """v_(t+1) - v_t, one fewer than values: what each step changed; they add up to last - first.

    Source: information gain of IGPO, arXiv 2510.14967; improvement reward of WaltzRL, arXiv 2510.08240.
    """
    return [after - before for before, after in pairwise(values)]
