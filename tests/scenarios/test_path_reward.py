"""What each role of `plan_path` is paid for its own part."""

from collections.abc import Mapping

import pytest

from mas.core.environment import Move
from mas.core.messages import Action, Failure, Feedback, Payload, Plan, Verdict
from mas.scenarios.plan_path import PathEnvironment, PathGrid, PathReward, PathRules, PathState

# A#G   U and L lead out, R into a wall: D alone is sensible.
# .#.
# ...
OPEN, WALL = Action(text="D"), Action(text="R")
NONSENSE = Failure(text="??", cause="nonsense")
YES, NO = Verdict(text="y", accept=True), Verdict(text="n", accept=False)


def own(
    role: str,
    output: Payload,
    before: Mapping[str, Payload] = {},
    after: Mapping[str, Payload] = {},
) -> Mapping[str, float]:
    environment = PathEnvironment(PathRules(size=3, walls=2, max_turns=12))
    environment._state = PathState(PathGrid(3, ((0, 1), (1, 1))), (0, 2), (0, 0), ((0, 0),))
    move = Move(agent=role, role=role, environment=environment, output=output, before=before, after=after)
    return PathReward().own(move)


def test_an_executor_is_paid_for_a_sensible_move_only() -> None:
    assert own("executor", OPEN)["valid"] > 0
    assert own("executor", WALL) == own("executor", NONSENSE) == {"valid": 0.0}


@pytest.mark.parametrize(
    ("verdict", "proposal", "sign"),
    [(YES, OPEN, 1), (NO, WALL, 1), (NO, NONSENSE, 1), (YES, WALL, -1), (NO, OPEN, -1), (YES, NONSENSE, -1)],
)
def test_a_verifier_is_paid_for_being_right(verdict: Verdict, proposal: Payload, sign: int) -> None:
    assert own("verifier", verdict, {"executor": proposal})["verdict"] * sign > 0


@pytest.mark.parametrize(
    ("before", "after", "sign"), [(WALL, OPEN, 1), (OPEN, WALL, -1), (OPEN, OPEN, 0), (NONSENSE, WALL, 0)]
)
def test_feedback_is_paid_for_what_it_improved(before: Payload, after: Payload, sign: int) -> None:
    gain = own("feedback", Feedback(text="D"), {"executor": before}, {"executor": after})["improvement"]
    assert (gain > 0) - (gain < 0) == sign


def test_a_planner_and_a_failed_verdict_have_no_terms_of_their_own() -> None:
    assert own("planner", Plan(text="02")) == {}
    assert own("verifier", NONSENSE, {"executor": OPEN}) == {}


def test_a_visited_cell_is_sensible_only_where_nothing_is_open() -> None:
    # From 10 back to 00 (visited): senseless while 20 is open, sensible once it was visited too.
    grid = PathGrid(3, ((0, 1), (1, 1)))
    assert not PathState(grid, (0, 2), (1, 0), ((0, 0), (1, 0)), "D").is_sensible("U")
    assert PathState(grid, (0, 2), (1, 0), ((0, 0), (1, 0), (2, 0)), "U").is_sensible("U")
    assert not PathState(grid, (0, 2), (1, 0), ((0, 0), (1, 0)), "D").is_sensible("R")
