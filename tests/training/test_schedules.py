"""Schedules are functions of the step alone: sections 9, 15 and 31 of the formula sheet."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.schedules import Horizon, PhaseWeight, RoleSwap, Stage, Stages

SCALING = ORACLES["31_scaling_inter"]
HORIZON = Horizon(turns=(10, 20, 30), every=100)
STAGES = Stages(
    stages=(
        Stage(roles=frozenset({"actor"}), steps=2),
        Stage(roles=frozenset({"planner"}), steps=3),
        Stage(roles=frozenset({"actor", "planner"}), steps=1),
    )
)
ALL: list[Callable[[int], Any]] = [
    HORIZON,
    PhaseWeight(epochs=30),
    STAGES,
    RoleSwap(players=("a", "b", "c")),
]


@pytest.mark.parametrize("step", SCALING["horizon"])
def test_horizons_grow(step: str) -> None:
    # The oracle's steps count from 1.
    assert HORIZON(int(step) - 1) == SCALING["horizon"][step]


def test_a_horizon_does_not_depend_on_a_resume() -> None:
    # The published schedule is at 20, 30, 30 in steps 101 to 103 after a resume at 100.
    published = SCALING["published_after_resume_at_100"]
    assert [HORIZON(int(step) - 1) for step in published] == [20, 20, 20] != list(published.values())


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: type(schedule).__name__)
@given(start=st.integers(0, 60))
def test_a_schedule_has_no_memory(schedule: Callable[[int], Any], start: int) -> None:
    whole = [schedule(step) for step in range(64)]
    assert [schedule(step) for step in range(start, 64)] == whole[start:]
    assert [schedule(step) for step in reversed(range(64))] == whole[::-1]


@pytest.mark.parametrize("schedule", ALL, ids=lambda schedule: type(schedule).__name__)
def test_steps_count_from_zero(schedule: Callable[[int], Any]) -> None:
    with pytest.raises(ValueError, match="step is -1"):
        schedule(-1)


@pytest.mark.parametrize("epoch", ORACLES["15_epo"]["phase_weight"])
def test_the_weight_of_smoothing_falls_slowly_then_fast(epoch: str) -> None:
    assert PhaseWeight(epochs=150)(int(epoch)) == near(ORACLES["15_epo"]["phase_weight"][epoch])


@given(epochs=st.integers(2, 200))
def test_the_weight_of_smoothing_never_rises(epochs: int) -> None:
    values = [PhaseWeight(epochs=epochs)(epoch) for epoch in range(epochs + 5)]
    assert values[0] == 1
    assert values == sorted(values, reverse=True)
    assert values[-1] > 0


def test_pioneer_and_observer_swap_every_five_steps() -> None:
    swap = RoleSwap(players=("A", "B"), every=5)
    for step, who in ORACLES["09_cory"]["role_by_step_swap5"]:
        assert f"{swap(step)[0]} pioneer" == who


def test_three_players_take_the_next_role_each() -> None:
    swap = RoleSwap(players=("a", "b", "c"), every=1)
    assert [swap(step) for step in range(4)] == [("a", "b", "c"), ("c", "a", "b"), ("b", "c", "a"), ("a", "b", "c")]


def test_stages_follow_each_other_and_the_last_does_not_end() -> None:
    assert [STAGES.number(step) for step in (0, 1, 2, 4, 5, 6, 99)] == [0, 0, 1, 1, 2, 2, 2]
    assert [sorted(STAGES(step)) for step in (1, 2, 99)] == [["actor"], ["planner"], ["actor", "planner"]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Horizon(turns=(), every=1), "has none"),
        (lambda: Horizon(turns=(3, 0), every=1), "turns is 0"),
        (lambda: Horizon(turns=(3,), every=0), "every is 0"),
        (lambda: PhaseWeight(epochs=1), "epochs is 1"),
        (lambda: Stages(stages=()), "has none"),
        (lambda: Stage(roles=frozenset(), steps=1), "trains no role"),
        (lambda: Stage(roles=frozenset({"a"}), steps=0), "steps is 0"),
        (lambda: RoleSwap(players=("a", "a")), "cannot swap"),
        (lambda: RoleSwap(players=("a", "b"), every=0), "every is 0"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
