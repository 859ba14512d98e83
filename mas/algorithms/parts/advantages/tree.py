"""Trees of turns: values backed up from their ends, what each turn gains by them, and preferences between siblings.

Siblings are candidates of one prompt and state. Source of the preferences: MALT, arXiv 2412.01928, section 4.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from mas.algorithms.parts.advantages.group import standardised
from mas.core.options import Options

Backup = Literal["child_softmax", "child_mean", "leaf_mean"]
NodeAdvantage = Literal["node_value", "diff_parent", "diff_global", "diff_localglobal"]
THRESHOLD = 0.5
_ROUNDING = 1e-9


class TreeOptions(Options):
    """Values of an entropy tree's turns, from the ends below them as z among the ends of the tree.

    `backup`: the mean of the children by softmax of their entropies, their plain mean, or the mean of all ends below.
    `form`: V; V - V(parent); V - V(root); or the sum of these differences.
    """

    backup: Backup = "child_softmax"
    form: NodeAdvantage = "node_value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One turn in a tree of turns; the root is the task itself and no turn.

    Attributes:
        parent: id of the node before it, None for a root.
        reward: of a leaf; None: it has children.
        entropy: of the turn, in nats; read by `child_softmax` alone.
    """

    id: str
    parent: str | None = None
    reward: float | None = None
    entropy: float = 0.0


def normalised_leaves(nodes: Sequence[Node]) -> list[Node]:
    """One tree with the rewards of its leaves as z (ddof 0). Source: AT2PO, arXiv 2601.04767."""
    scores = iter(standardised([node.reward for node in nodes if node.reward is not None], ddof=0))
    return [node if node.reward is None else replace(node, reward=next(scores)) for node in nodes]


def node_values(nodes: Sequence[Node], backup: Backup = "child_softmax") -> dict[str, float]:
    """A leaf's value is its reward, an inner node's comes from below.

    `child_softmax`: mean of the children weighted by softmax of their entropies (AT2PO); `child_mean`: their mean
    (MALT, arXiv 2412.01928); `leaf_mean`: mean of all leaves below.

    Args:
        nodes: of one or several trees, in any order.

    Raises:
        ValueError: ids repeat, a parent is not there, an inner node has a reward, or a node without children has none.
    """
    children = _children(nodes)
    leaves: dict[str, list[float]] = {}
    values: dict[str, float] = {}
    for node in _from_below(nodes, children):
        own = children[node.id]
        if node.reward is not None:
            leaves[node.id], values[node.id] = [node.reward], node.reward
            continue
        leaves[node.id] = [value for child in own for value in leaves[child.id]]
        if backup == "leaf_mean":
            values[node.id] = fmean(leaves[node.id])
        else:
            weights = _softmax([child.entropy if backup == "child_softmax" else 0.0 for child in own])
            values[node.id] = math.fsum(w * values[child.id] for w, child in zip(weights, own, strict=True))
    return values


def node_advantages(
    nodes: Sequence[Node], values: Mapping[str, float], mode: NodeAdvantage = "node_value"
) -> dict[str, float]:
    """The advantage of every node but the roots; all tokens of a turn get its node's.

    `node_value`: V; `diff_parent`: V - V(parent); `diff_global`: V - V(root); `diff_localglobal`: the sum of the two
    differences. Source: AT2PO, arXiv 2601.04767.
    """
    by_id = {node.id: node for node in nodes}
    found = {}
    for node in nodes:
        if node.parent is None:
            continue
        root = by_id[node.parent]
        while root.parent is not None:
            root = by_id[root.parent]
        local, whole = values[node.id] - values[node.parent], values[node.id] - values[root.id]
        found[node.id] = {
            "node_value": values[node.id],
            "diff_parent": local,
            "diff_global": whole,
            "diff_localglobal": local + whole,
        }[mode]
    return found


def preference_labels(
    values: Sequence[float], groups: Sequence[Hashable], threshold: float | None = THRESHOLD
) -> list[bool | None]:
    """True: positive, V > threshold by more than rounding; False: negative, V <= threshold (MALT: 0.5).

    With `threshold` None each is compared with the mean of its siblings (not of MALT): above it is positive, below it
    negative, and None where it is neither.

    Raises:
        ValueError: the two lengths differ.
    """
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} values but {len(groups)} groups: give one group per value")
    if threshold is not None:
        return [value - threshold > _ROUNDING for value in values]
    by_group: dict[Hashable, list[float]] = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        by_group[group].append(value)
    labels: list[bool | None] = []
    for value, group in zip(values, groups, strict=True):
        own = by_group[group]
        labels.append(None if min(own) == max(own) else _sign(value - fmean(own)))
    return labels


def sibling_pairs(labels: Sequence[bool | None], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """(winner, loser) for every positive and every negative of one group, as indices, in order.

    Raises:
        ValueError: the two lengths differ.
    """
    if len(labels) != len(groups):
        raise ValueError(f"{len(labels)} labels but {len(groups)} groups: give one group per label")
    by_group: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        by_group[group].append(index)
    return [
        (winner, loser)
        for own in by_group.values()
        for winner in own
        for loser in own
        if labels[winner] is True and labels[loser] is False
    ]


def _children(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    children: dict[str, list[Node]] = {node.id: [] for node in nodes}
    if len(children) < len(nodes):
        raise ValueError(f"{len(nodes)} nodes have only {len(children)} ids: each node needs one of its own")
    for node in nodes:
        if node.parent is not None:
            if node.parent not in children:
                raise ValueError(f"the parent {node.parent!r} of node {node.id!r} is not among the nodes")
            children[node.parent].append(node)
    return children


def _from_below(nodes: Sequence[Node], children: Mapping[str, Sequence[Node]]) -> list[Node]:
    """Children before their parents."""
    ordered = [node for node in nodes if node.parent is None]
    for node in ordered:
        if (node.reward is None) != bool(children[node.id]):
            why = "has children and a reward" if children[node.id] else "has neither children nor a reward"
            raise ValueError(f"node {node.id!r} {why}: exactly the leaves have a reward")
        ordered += children[node.id]
    if len(ordered) < len(nodes):
        lost = sorted({node.id for node in nodes} - {node.id for node in ordered})
        raise ValueError(f"nodes {lost} hang from no root: their parents lead in a circle")
    return ordered[::-1]


def _softmax(values: Sequence[float]) -> list[float]:
    most = max(values)
    raw = [math.exp(value - most) for value in values]
    return [value / math.fsum(raw) for value in raw]


def _sign(difference: float) -> bool | None:
    return None if abs(difference) <= _ROUNDING else difference > 0
