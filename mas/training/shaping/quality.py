"""Rewards that look at what came before: MARTI's shaping by history and by the tree of answers.

Source: the code of MARTI (TsinghuaC3I).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Literal

HistoryMode = Literal["quality", "margin"]


def history_shaped(reward: float, earlier: Sequence[float], *, mode: HistoryMode, weight: float) -> float:
    """With Q = mean of the agent's earlier turn rewards: `quality` r + weight (Q r - (1 - Q)(1 - r)), for rewards from
    0 to 1; `margin` r + weight (r - Q).

    In a first turn (no `earlier`) the reward stays as it is, our reading.

    Raises:
        ValueError: with `quality`, a reward outside of [0, 1].
    """
    if mode == "quality":
        outside = [value for value in (reward, *earlier) if not 0 <= value <= 1]
        if outside:
            raise ValueError(f"reward {outside[0]} is outside of [0, 1], which quality needs; use margin")
    if not earlier:
        return reward
    mean = fmean(earlier)
    if mode == "margin":
        return reward + weight * (reward - mean)
    return reward + weight * (mean * reward - (1 - mean) * (1 - reward))


def with_outcome(rewards: Sequence[float], weight: float) -> list[float]:
    """Every turn's reward plus weight x the last turn's reward, the last turn's included."""
    return [reward + weight * rewards[-1] for reward in rewards]


def tree_shaped(
    rewards: Mapping[str, float], parents: Mapping[str, str | None], *, weight: float = 0.3, siblings: float = 0.5
) -> dict[str, float]:
    """r + weight (r - ((1 - l) parent + l mean of siblings)) of every node, l = `siblings`.

    Without siblings it is compared with the parent alone; a root keeps its reward (our reading). All comparisons are
    with unshaped rewards; the published code edits them in place, so that a child may see its parent's shaped one.

    Args:
        rewards: node -> reward. parents: node -> parent, None for a root.

    Raises:
        ValueError: the nodes differ, a parent is no node, or `siblings` is outside of [0, 1].
    """
    if rewards.keys() != parents.keys():
        raise ValueError(f"rewards and parents are of different nodes: {sorted(rewards.keys() ^ parents.keys())}")
    unknown = [parent for parent in parents.values() if parent is not None and parent not in rewards]
    if unknown:
        raise ValueError(f"parent {unknown[0]!r} is no node; the nodes are {sorted(rewards)}")
    if not 0 <= siblings <= 1:
        raise ValueError(f"the share of siblings is {siblings}; it must be from 0 to 1")
    children: dict[str, list[str]] = {}
    for node, parent in parents.items():
        if parent is not None:
            children.setdefault(parent, []).append(node)
    return {node: _shaped(node, rewards, parents, children, weight, siblings) for node in rewards}


def _shaped(
    node: str,
    rewards: Mapping[str, float],
    parents: Mapping[str, str | None],
    children: Mapping[str, Sequence[str]],
    weight: float,
    siblings: float,
) -> float:
    reward, parent = rewards[node], parents[node]
    if parent is None:
        return reward
    others = [rewards[child] for child in children[parent] if child != node]
    reference = (1 - siblings) * rewards[parent] + siblings * fmean(others) if others else rewards[parent]
    return reward + weight * (reward - reference)
