"""Trees of turns: values, advantages, labels, pairs."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.training.advantages.preferences import labels, preference_pairs
from mas.training.advantages.tree import Node, node_advantages, node_values, normalised_leaves

AT2PO, MALT = ORACLES["21_at2po"], ORACLES["07_malt"]
# Section 21: leaves 1 and 0 under n1 (entropy 1), and the leaf n2 (entropy 0).
GROWN = [
    Node(id="root"),
    Node(id="n1", parent="root", entropy=1.0),
    Node(id="n2", parent="root", reward=0.0),
    Node(id="leaf_a", parent="n1", reward=1.0, entropy=0.5),
    Node(id="leaf_b", parent="n1", reward=0.0, entropy=0.5),
]
# Section 7: two generators, two verifiers each, two refiners each, right or wrong.
REFINED = {"v00": [1, 1], "v01": [1, 0], "v10": [0, 0], "v11": [1, 0]}
QUARTERS = st.integers(-8, 8).map(lambda n: n / 4)


def malt() -> list[Node]:
    nodes = [Node(id="q"), *(Node(id=f"g{g}", parent="q") for g in range(2))]
    for verifier, leaves in REFINED.items():
        nodes.append(Node(id=verifier, parent=f"g{verifier[1]}"))
        nodes += [Node(id=f"{verifier}/{k}", parent=verifier, reward=float(right)) for k, right in enumerate(leaves)]
    return nodes


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


def test_malt_backs_up_labels_and_pairs() -> None:
    nodes = malt()
    values = node_values(nodes, "child_mean")
    assert {name: values[name] for name in MALT["value"]} == near(MALT["value"])
    good = labels(values)
    assert {name: good[name] for name in MALT["label"]} == MALT["label"]
    pairs = preference_pairs(nodes, good)
    wanted = [*map(tuple, MALT["generator_pairs"]), *map(tuple, MALT["verifier_pairs"])]
    wanted += [(f"{v}/{won}", f"{v}/{lost}") for v, won, lost in MALT["refiner_pairs_input_winner_loser"]]
    assert sorted(pairs) == sorted(wanted)


def test_malt_grows_a_full_tree() -> None:
    names = ["".join(path) for depth in range(4) for path in product("abc", repeat=depth)]
    nodes = [Node(id=n, parent=n[:-1] if n else None, reward=1.0 if len(n) == 3 else None) for n in names]
    assert sum(node.reward is not None for node in nodes) == MALT["leaves_for_branching_3"]
    assert node_values(nodes, "child_mean")[""] == 1.0


@given(nodes=trees())
def test_pairs_are_of_siblings_good_before_bad(nodes: Any) -> None:
    good = labels(node_values(nodes, "child_mean"))
    parents = {node.id: node.parent for node in nodes}
    pairs = preference_pairs(nodes, good)
    assert len(set(pairs)) == len(pairs)
    assert all(good[won] and not good[lost] and parents[won] == parents[lost] for won, lost in pairs)
    siblings = [(a, b) for a, b in product(parents, repeat=2) if parents[a] is not None and parents[a] == parents[b]]
    assert len(pairs) == sum(good[a] and not good[b] for a, b in siblings)


def test_exactly_half_is_not_good() -> None:
    assert labels({"a": 0.5, "b": 0.51}) == {"a": False, "b": True}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([Node(id="a"), Node(id="a")], "2 nodes have only 1 ids"),
        ([Node(id="a", parent="b", reward=1.0)], "the parent 'b' of node 'a'"),
        ([Node(id="a")], "'a' has neither children nor a reward"),
        ([Node(id="a", reward=1.0), Node(id="b", parent="a", reward=1.0)], "'a' has children and a reward"),
        ([Node(id="a", parent="b"), Node(id="b", parent="a")], r"nodes \['a', 'b'\] hang from no root"),
    ],
)
def test_what_is_no_tree_is_refused(nodes: list[Node], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        node_values(nodes)
