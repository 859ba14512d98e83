"""Packing: every row keeps its own path, what is common stands once, and micro-batches keep their bounds."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import make_turn

from mas.training.batch import (
    MicroBatch,
    PackCost,
    Sharing,
    TrainRow,
    Tree,
    build_tree,
    build_trees,
    fed,
    packed,
    padded,
)

COST = PackCost(token=1.0, pair=0.01)
ALL = [Sharing(prompts, turns) for prompts in (False, True) for turns in (False, True)]
ids = st.lists(st.integers(4, 6), min_size=1, max_size=6).map(tuple)
rows_drawn = st.lists(
    st.builds(
        lambda role, prompt, completion: row(prompt, completion, role),
        st.sampled_from(["planner", "executor"]),
        ids,
        ids,
    ),
    min_size=1,
    max_size=14,
)


def row(prompt: tuple[int, ...], completion: tuple[int, ...], role: str = "planner", trajectory: str = "") -> TrainRow:
    turn = make_turn(role=role, prompt_ids=prompt, completion_ids=completion, trajectory=trajectory)
    return TrainRow(turn, role, 1.0, 1.0)


def path_to(tree: Tree, place: int) -> list[int]:
    return [k for k in range(place + 1) if place < tree.ends[k]]


def check_tree(tree: Tree) -> None:
    """Every row's tokens stand on the path to the last of its places, at their positions."""
    for one, reads in zip(tree.rows, tree.reads, strict=True):
        path = path_to(tree, reads[-1])
        assert tuple(tree.ids[k] for k in path) == fed(one)
        assert [tree.positions[k] for k in path] == list(range(len(path)))
        assert tuple(path[len(one.turn.prompt_ids) - 1 :]) == reads
        assert len(reads) == len(one.turn.completion_ids)
        assert one.adapter == tree.adapter


@settings(deadline=None)
@given(rows=rows_drawn, budget=st.integers(1, 60))
@pytest.mark.parametrize("sharing", ALL)
def test_every_row_is_in_one_tree_with_its_own_path(sharing: Sharing, rows: list[TrainRow], budget: int) -> None:
    trees = build_trees(rows, sharing, budget)
    assert Counter(id(one) for tree in trees for one in tree.rows) == Counter(id(one) for one in rows)
    for tree in trees:
        check_tree(tree)
        assert len(tree.ids) <= budget or len(tree.rows) == 1


@settings(deadline=None)
@given(rows=rows_drawn)
def test_shared_by_all_means_that_every_beginning_stands_once(rows: list[TrainRow]) -> None:
    trees = build_trees(rows, Sharing(), 10**6)
    beginnings = {(one.adapter, fed(one)[:length]) for one in rows for length in range(1, len(fed(one)) + 1)}
    assert sum(len(tree.ids) for tree in trees) == len(beginnings)


def test_nothing_shared_means_a_tree_a_row() -> None:
    rows = [row((4, 5), (6, 7))] * 3
    assert [len(tree.ids) for tree in build_trees(rows, Sharing(prompts=False, turns=False), 100)] == [3, 3, 3]


def test_a_prompt_is_shared_by_its_candidates_and_by_no_other_prompt() -> None:
    rows = [row((4, 5, 6), (7, 8)), row((4, 5, 6), (9,)), row((4, 5, 6), (7, 8)), row((4, 5, 7), (8, 9))]
    trees = build_trees(rows, Sharing(prompts=True, turns=False), 100)
    assert sorted((tree.ids, len(tree.rows)) for tree in trees) == [((4, 5, 6, 7), 3), ((4, 5, 7, 8), 1)]


def test_turns_that_continue_each_other_are_one_transcript() -> None:
    first, second, third = (4, 5), (4, 5, 6, 7, 8), (4, 5, 6, 7, 8, 9, 3)
    rows = [row(second, (9,)), row(first, (6, 7)), row(third, (2, 2)), row(first, (6, 7)), row((4, 5, 6), (1,))]
    trees = build_trees(rows, Sharing(prompts=False, turns=True), 100)
    # The other row of `first` has no turn of its own behind it, and (4, 5, 6) continues no whole turn.
    assert sorted(len(tree.rows) for tree in trees) == [1, 1, 3]
    (transcript,) = [tree for tree in trees if len(tree.rows) == 3]
    assert transcript.ids == (*third, 2)
    check_tree(transcript)


@pytest.mark.parametrize("budget", [17, 24])
def test_trees_are_cut_between_prompts_rather_than_inside_a_group(budget: int) -> None:
    groups = [[row((4, prompt, 5, 6, 7), (candidate, 8)) for candidate in range(4, 8)] for prompt in range(10, 15)]
    trees = build_trees([one for group in groups for one in group], Sharing(), budget)
    # A group is 5 + 4 tokens; they share their first token: 9 + 8 = 17 fit, 25 do not, though 24 have room for three
    # more rows.
    assert [len(tree.ids) for tree in trees] == [17, 17, 9]


def test_a_group_that_is_too_large_is_cut_into_trees_that_are_full() -> None:
    group = [row((4, 9, 5, 6, 7), (candidate, 8)) for candidate in range(10, 16)]
    assert [len(tree.ids) for tree in build_trees(group, Sharing(), 7)] == [7, 7, 7]


@settings(deadline=None)
@given(rows=rows_drawn, budget=st.integers(1, 60))
def test_micro_batches_hold_every_tree_within_their_budget(rows: list[TrainRow], budget: int) -> None:
    trees = build_trees(rows, Sharing(), budget)
    for batches in (packed(trees, budget, COST), padded(trees, budget)):
        assert Counter(id(tree) for batch in batches for tree in batch.trees) == Counter(map(id, trees))
        for batch in batches:
            assert batch.tokens <= budget or len(batch.trees) == 1
            assert [tree.adapter for tree in batch.trees] == sorted(tree.adapter for tree in batch.trees)
            assert batch.width is None or batch.width == max(len(tree.ids) for tree in batch.trees)


def test_packed_micro_batches_cost_about_the_same() -> None:
    rows = [row(tuple(range(10 * n, 10 * n + 3 + n % 17)), (5,)) for n in range(1, 60)]
    trees = build_trees(rows, Sharing(), 200)
    batches = packed(trees, 200, COST)
    costs = [sum(COST.of(tree) for tree in batch.trees) for batch in batches]
    assert len(batches) == -(-sum(len(tree.ids) for tree in trees) // 200)
    assert max(costs) <= 1.1 * min(costs)


def test_the_cost_of_a_pair_counts_when_sequences_are_long() -> None:
    long, short = build_tree([row(tuple(range(100)), (5,))]), build_tree([row(tuple(range(10)), (5,))])
    assert long.pairs == 100 * 101 / 2
    assert COST.of(long) > 10 * COST.of(short)


@pytest.mark.parametrize("kind", ["packed", "padded"])
def test_trees_that_belong_together_stay_together(kind: str) -> None:
    rows = [row((n, 5, 6), (7, 8), trajectory=f"t{n % 3}") for n in range(10, 22)]
    trees = build_trees(rows, Sharing(), 8)

    def together(one: TrainRow) -> str:
        return one.turn.trajectory

    batches = packed(trees, 8, COST, together) if kind == "packed" else padded(trees, 8, together)
    assert len(batches) == 3
    for batch in batches:
        assert len({one.turn.trajectory for one in batch.rows}) == 1


def test_places_count_on_over_trees_and_padding() -> None:
    trees = (build_tree([row((4, 5), (6, 7))]), build_tree([row((4,), (6, 7))]))
    assert MicroBatch(trees).starts == [0, 3]
    assert MicroBatch(trees, 5).starts == [0, 5]
    assert MicroBatch(trees, 5).tokens == 10
