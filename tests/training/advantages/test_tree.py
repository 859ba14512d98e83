"""Trees of turns: values and advantages."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.tree import Node, node_advantages, node_values, normalised_leaves

AT2PO = ORACLES["21_at2po"]
# Section 21: leaves 1 and 0 under n1 (entropy 1), and the leaf n2 (entropy 0).
GROWN = [
    Node(id="root"),
    Node(id="n1", parent="root", entropy=1.0),
    Node(id="n2", parent="root", reward=0.0),
    Node(id="leaf_a", parent="n1", reward=1.0, entropy=0.5),
    Node(id="leaf_b", parent="n1", reward=0.0, entropy=0.5),
]
QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)


@st.composite
def trees(draw: Any) -> list[Node]:
    parents = [draw(st.integers(0, index - 1)) for index in range(1, draw(st.integers(2, 10)))]
    inner = set(parents)
    nodes = [Node(id="0")]
    for index, parent in enumerate(parents, start=1):
        reward = None if index in inner else draw(QUARTERS)
        nodes.append(Node(id=str(index), parent=str(parent), reward=reward, entropy=draw(QUARTERS)))
    return nodes


def test_at2po_values() -> None:
    assert node_values(normalised_leaves(GROWN)) == near(AT2PO["node_value"])


@pytest.mark.parametrize("mode", ["node_value", "diff_parent", "diff_global", "diff_localglobal"])
def test_at2po_advantages(mode: Any) -> None:
    nodes = normalised_leaves(GROWN)
    wanted = {name: value for name, value in AT2PO[mode].items() if name != "root"}
    assert node_advantages(nodes, node_values(nodes), mode) == near(wanted)


def test_backups_differ_where_branches_do() -> None:
    # n1 = (1 + 0) / 2; root: mean of 0.5 and 0, or of 1, 0 and 0, or weighted e : 1.
    roots = {backup: node_values(GROWN, backup)["root"] for backup in ("child_mean", "leaf_mean", "child_softmax")}
    assert roots == near({"child_mean": 0.25, "leaf_mean": 1 / 3, "child_softmax": 0.5 * 0.7310586})


def test_entropies_of_any_size_are_weighted() -> None:
    # Weights e^1 : 1, however far from 0 both are.
    for least in (-2000.0, 2000.0):
        nodes = [Node(id="r"), *(Node(id=str(k), parent="r", reward=float(k), entropy=least + k) for k in range(2))]
        assert node_values(nodes)["r"] == near(0.7310586)


@given(nodes=trees(), backup=st.sampled_from(["child_softmax", "child_mean", "leaf_mean"]))
def test_values_lie_between_those_of_the_leaves(nodes: Any, backup: Any) -> None:
    leaves = [node.reward for node in nodes if node.reward is not None]
    values = node_values(nodes, backup)
    assert min(leaves) - 1e-9 <= min(values.values())
    assert max(values.values()) <= max(leaves) + 1e-9
    assert node_values(nodes[::-1], backup) == near(values)


@given(nodes=trees())
def test_differences_to_the_parent_add_up_to_that_to_the_root(nodes: Any) -> None:
    values = node_values(nodes)
    local, whole, both = (
        node_advantages(nodes, values, mode) for mode in ("diff_parent", "diff_global", "diff_localglobal")
    )
    parents = {node.id: node.parent for node in nodes}
    for name, value in whole.items():
        path, here = [], name
        while parents[here] is not None:
            path.append(local[here])
            here = parents[here]
        assert sum(path) == pytest.approx(value)
        assert both[name] == pytest.approx(local[name] + value)


@given(nodes=trees())
def test_children_average_out_against_their_parent(nodes: Any) -> None:
    values = node_values(nodes, "child_mean")
    local = node_advantages(nodes, values, "diff_parent")
    for parent in nodes:
        assert sum(local[node.id] for node in nodes if node.parent == parent.id) == pytest.approx(0, abs=1e-9)


def test_equal_leaves_teach_nothing() -> None:
    nodes = normalised_leaves([Node(id="r"), *(Node(id=str(k), parent="r", reward=0.7) for k in range(3))])
    assert set(node_values(nodes).values()) == {0.0}
