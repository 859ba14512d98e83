"""From a tree's values to what offline training needs: labels, and pairs of siblings."""

from collections.abc import Mapping, Sequence

from mas.training.advantages.members import members
from mas.training.advantages.tree import Node


def labels(values: Mapping[str, float], threshold: float = 0.5) -> dict[str, bool]:
    """Good is what is strictly above the threshold. Source: MALT, arXiv 2412.01928."""
    return {node: value > threshold for node, value in values.items()}


def preference_pairs(nodes: Sequence[Node], good: Mapping[str, bool]) -> list[tuple[str, str]]:
    """(winner, loser) for every good and bad child of one parent: both answered the same input.

    Source: MALT, arXiv 2412.01928; one role's pairs are those of its depth in the tree.
    """
    pairs = []
    for indices in members([node.parent for node in nodes]).values():
        siblings = [nodes[i].id for i in indices if nodes[i].parent is not None]
        winners, losers = ([node for node in siblings if good[node] is wanted] for wanted in (True, False))
        pairs += [(winner, loser) for winner in winners for loser in losers]
    return pairs
