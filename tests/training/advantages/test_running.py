"""A carried baseline: read before it learns, one per key, and resumed as if never stopped."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import RunningBaseline

GOLDEN = ORACLES["04_spiral_rae"]
RETURNS, ROLES = GOLDEN["returns"], [str(role) for role in GOLDEN["roles"]]
ROWS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-4, 4).map(float)), min_size=1, max_size=12)


def test_spiral_reads_the_baseline_before_it_learns() -> None:
    running = RunningBaseline()
    found = running.advantages(RETURNS, ROLES, range(6))
    assert found == near(GOLDEN["adv_read_then_update"])
    assert found != near(GOLDEN["adv_update_then_read"])
    assert running.means == near(GOLDEN["baseline_after"])


@given(reward=st.integers(-4, 4).map(float), count=st.integers(1, 8))
def test_a_constant_reward_loses_its_surprise_by_the_decay(reward: float, count: int) -> None:
    # b_k = R (1 - g^k), read before: A_k = R g^k, k = 0, 1, ...
    found = RunningBaseline(0.5).advantages([reward] * count, ["k"] * count, range(count))
    assert found == near([reward * 0.5**k for k in range(count)])


@given(rows=ROWS, data=st.data())
def test_who_ended_first_does_not_matter(rows: Any, data: Any) -> None:
    shuffled = data.draw(st.permutations(list(enumerate(rows))))
    first, second = RunningBaseline(), RunningBaseline()
    found = first.advantages([r for _, r in rows], [k for k, _ in rows], range(len(rows)))
    again = second.advantages([r for _, (_, r) in shuffled], [k for _, (k, _) in shuffled], [i for i, _ in shuffled])
    assert again == [found[i] for i, _ in shuffled]
    assert first.means == second.means


@given(rows=ROWS, cut=st.integers(0, 12))
def test_saved_and_read_back_it_goes_on_as_if_never_stopped(rows: Any, cut: int) -> None:
    rewards, keys, order = [r for _, r in rows], [k for k, _ in rows], list(range(len(rows)))
    whole = RunningBaseline(0.9).advantages(rewards, keys, order)
    running = RunningBaseline(0.9)
    before = running.advantages(rewards[:cut], keys[:cut], order[:cut])
    resumed = RunningBaseline(0.9, json.loads(json.dumps(running.state())))
    assert before + resumed.advantages(rewards[cut:], keys[cut:], order[cut:]) == whole


@given(rows=ROWS, other=st.integers(-4, 4))
def test_one_keys_rewards_do_not_move_anothers(rows: Any, other: int) -> None:
    keys = [k for k, _ in rows]
    found = RunningBaseline().advantages([r for _, r in rows], keys, range(len(rows)))
    changed = RunningBaseline().advantages([r if k == "a" else r + other for k, r in rows], keys, range(len(rows)))
    assert [a for k, a in zip(keys, found, strict=True) if k == "a"] == [
        a for k, a in zip(keys, changed, strict=True) if k == "a"
    ]


def test_without_memory_the_baseline_is_the_last_reward() -> None:
    assert RunningBaseline(0.0).advantages([1.0, 3.0, 2.0], ["k"] * 3, range(3)) == [1.0, 2.0, -1.0]


def test_its_state_is_a_copy() -> None:
    running = RunningBaseline()
    state = running.state()
    running.advantages([1.0], ["k"], [0])
    assert state == {}


def test_what_cannot_be_ordered_is_refused() -> None:
    with pytest.raises(ValueError, match="two rewards of key 'k' have the label 0"):
        RunningBaseline().advantages([1.0, 2.0], ["k", "k"], [0, 0])
    with pytest.raises(ValueError, match="1 rewards but 2 keys"):
        RunningBaseline().advantages([1.0], ["k", "k"], [0])
    with pytest.raises(ValueError, match=r"below 1, not 1\.0"):
        RunningBaseline(1.0)
