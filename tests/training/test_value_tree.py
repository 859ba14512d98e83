"""Values of a tree and preferences between siblings: MALT's numbers, and what must hold of any tree."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.algorithms.parts.advantages.tree import Node, node_values, preference_labels, sibling_pairs

MALT: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())["07_malt"]

# g0 {v00 [1, 1], v01 [1, 0]}, g1 {v10 [0, 0], v11 [1, 0]}; the leaves are the refiner's outputs.
NAMES = ("g0", "g1", "v00", "v01", "v10", "v11")
PARENTS = [None, None, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
LEAVES = dict(enumerate((1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0), start=6))
GROUPS = [f"under {parent}" for parent in PARENTS]


def tree_values(parents: Sequence[int | None], leaves: Mapping[int, float]) -> list[float]:
    """Means of the children, of nodes that are called by their number."""
    names = [None if parent is None else str(parent) for parent in parents]
    nodes = [Node(id=str(n), parent=parent, reward=leaves.get(n)) for n, parent in enumerate(names)]
    values = node_values(nodes, "child_mean")
    return [values[node.id] for node in nodes]


def test_the_values_are_the_means_of_the_children() -> None:
    found = dict(zip(NAMES, tree_values(PARENTS, LEAVES), strict=False))
    assert found == MALT["value"]


def test_only_what_is_above_a_half_is_positive() -> None:
    labels = preference_labels(tree_values(PARENTS, LEAVES), GROUPS)
    assert dict(zip(NAMES, labels, strict=False)) == MALT["label"]


def test_pairs_are_siblings_of_different_labels() -> None:
    labels = preference_labels(tree_values(PARENTS, LEAVES), GROUPS)
    pairs = sibling_pairs(labels, GROUPS)
    named = [[NAMES[one] for one in pair] for pair in pairs if max(pair) < len(NAMES)]
    assert [pair for pair in named if pair[0][0] == "g"] == MALT["generator_pairs"]
    assert [pair for pair in named if pair[0][0] == "v"] == MALT["verifier_pairs"]
    first = {6: "v00", 8: "v01", 10: "v10", 12: "v11"}
    refined = [pair for pair in pairs if min(pair) >= len(NAMES)]
    found = [[first[w - w % 2], w % 2, loser % 2] for w, loser in refined]
    assert found == MALT["refiner_pairs_input_winner_loser"]


def test_three_candidates_of_three_roles_are_27_leaves() -> None:
    parents: list[int | None] = [None] * 3
    before = range(3)
    for _ in range(2):
        parents += [parent for parent in before for _ in range(3)]
        before = range(len(parents) - 3 * len(before), len(parents))
    assert len(before) == MALT["leaves_for_branching_3"]
    assert tree_values(parents, dict.fromkeys(before, 1.0)) == [1.0] * len(parents)


@given(st.lists(st.lists(st.lists(st.sampled_from((0.0, 1.0)), min_size=1, max_size=3), min_size=1), min_size=1))
def test_a_value_is_between_those_of_its_children_and_pairs_are_of_one_group(tree: list[list[list[float]]]) -> None:
    parents: list[int | None] = []
    leaves: dict[int, float] = {}
    for middle in tree:
        top = len(parents)
        parents.append(None)
        for outcomes in middle:
            parents.append(top)
            under = len(parents) - 1
            for outcome in outcomes:
                leaves[len(parents)] = outcome
                parents.append(under)
    values = tree_values(parents, leaves)
    for node, value in enumerate(values):
        children = [values[child] for child, parent in enumerate(parents) if parent == node]
        if children:
            assert min(children) - 1e-12 <= value <= max(children) + 1e-12
            assert value == pytest.approx(fmean(children))
    for threshold in (0.5, None):
        labels = preference_labels(values, parents, threshold)
        for winner, loser in sibling_pairs(labels, parents):
            assert parents[winner] == parents[loser]
            assert values[winner] > values[loser]


def test_against_the_mean_of_siblings() -> None:
    # Mean of a is 2: above, below, neither; b's are equal.
    values, groups = [3.0, 1.0, 2.0, 7.0, 7.0], ["a", "a", "a", "b", "b"]
    labels = preference_labels(values, groups, None)
    assert labels == [True, False, None, None, None]
    assert sibling_pairs(labels, groups) == [(0, 1)]


def test_a_mean_of_thirds_that_is_a_half_is_not_above_a_half() -> None:
    values = [fmean([1 / 3, 2 / 3, 0.5]), 0.5 + 1e-12, 0.5 + 1e-6]
    assert preference_labels(values, ["g"] * 3) == [False, False, True]


def test_wrong_trees_are_refused() -> None:
    with pytest.raises(ValueError, match="the parent '2' of node '0' is not among"):
        tree_values([2, None], {0: 1.0})
    with pytest.raises(ValueError, match="node '0' has children and a reward"):
        tree_values([None, 0], {0: 1.0})
    with pytest.raises(ValueError, match="2 values but 1 groups"):
        preference_labels([1.0, 0.0], ["a"])
    with pytest.raises(ValueError, match="1 labels but 2 groups"):
        sibling_pairs([True], ["a", "a"])
