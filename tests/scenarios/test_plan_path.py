"""`plan_path`: what is paid, and that no trick is paid better than walking to the goal."""

from collections.abc import Callable
from random import Random

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.scenarios.plan_path import BACK, MOVES, PathEnvironment, PathGrid, PathRules, PathState, neighbour, team_move

Policy = Callable[[PathState], str]


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(ScenarioOptions(name="plan_path"))


def begin(scenario: Scenario, task: Task) -> PathEnvironment:
    environment = scenario.environment()
    assert isinstance(environment, PathEnvironment)
    environment.reset(task)
    return environment


def earn(environment: PathEnvironment, policy: Policy) -> float:
    """Sum of all terms."""
    total = 0.0
    while environment.to_move():
        total += sum(environment.step({"team": policy(environment.state)}).rewards["team"].values())
    return total


def shortest(state: PathState) -> str:
    distances = state.grid.distances(state.goal)
    return min(MOVES, key=lambda move: distances.get(neighbour(state.cell, move), 999))


def idle(state: PathState) -> str:
    return ""


def bump(state: PathState) -> str:
    blocked = [move for move in MOVES if not state.grid.is_free(neighbour(state.cell, move))]
    return blocked[0] if blocked else shortest_away(state)


def shortest_away(state: PathState) -> str:
    distances = state.grid.distances(state.goal)
    return max(MOVES, key=lambda move: distances.get(neighbour(state.cell, move), -1))


def back_and_forth(state: PathState) -> str:
    return BACK[state.last] if state.last in MOVES else shortest(state)


def dither_before_the_goal(state: PathState) -> str:
    """Collect progress, then step back to collect it again."""
    move = shortest(state)
    return BACK[state.last] if neighbour(state.cell, move) == state.goal and state.last in MOVES else move


@pytest.mark.parametrize("trick", [idle, bump, back_and_forth, shortest_away, dither_before_the_goal])
def test_no_trick_earns_what_walking_to_the_goal_earns(scenario: Scenario, trick: Policy) -> None:
    for index in range(40):
        task = scenario.task("train", index)
        honest = earn(begin(scenario, task), shortest)
        assert earn(begin(scenario, task), trick) <= honest - 0.5


@pytest.mark.parametrize("policy", [shortest, idle, back_and_forth, dither_before_the_goal])
def test_the_sum_of_rewards_is_bounded_by_the_start_distance(scenario: Scenario, policy: Policy) -> None:
    for index in range(40):
        environment = begin(scenario, scenario.task("train", index))
        rules, far = environment.rules, environment._distance(environment.state)
        most, least = rules.progress * far + rules.goal, -rules.max_turns * (rules.progress + abs(rules.waste))
        assert least <= earn(environment, policy) <= most + 1e-9


def test_a_team_that_does_all_right_solves_nearly_all(scenario: Scenario) -> None:
    random, solved = Random(0), 0
    for index in range(200):
        environment = begin(scenario, scenario.task("eval", index))
        while environment.to_move():
            environment.step({"team": team_move(environment.state, random)})
        solved += environment.success()
    assert solved / 200 >= 0.95


def world(*, oracle: bool) -> PathEnvironment:
    """Start at 00, a wall at 01 and 11, goal at 02: the way leads round below.

    A#G
    .#.
    ...
    """
    environment = PathEnvironment(PathRules(size=3, walls=2, max_turns=12, oracle=oracle))
    environment._state = PathState(PathGrid(3, ((0, 1), (1, 1))), (0, 2), (0, 0), ((0, 0),))
    return environment


@pytest.mark.parametrize(("oracle", "first"), [(False, -0.25), (True, 0.25)])
def test_the_oracle_measures_along_the_way_and_its_absence_through_walls(oracle: bool, first: float) -> None:
    # D leads from 00 to 10: one nearer along the way (6 -> 5), one farther through the walls (2 -> 3).
    environment = world(oracle=oracle)
    assert environment.step({"team": "D"}).rewards["team"] == {"progress": first}
    # D, R, R, U, U follow. Progress sums to 0.25 x 6 along the way and to 0.25 x 2 through the walls.
    paid = [environment.step({"team": move}).rewards["team"] for move in "DRRUU"]
    assert first + sum(terms["progress"] for terms in paid) == pytest.approx(1.5 if oracle else 0.5)
    # The goal is reached in turn 5 (from 0) of 12: 1 - 0.5 x 5 / 12.
    assert paid[-1]["goal"] == pytest.approx(1 - 0.5 * 5 / 12)
    assert environment.success()


@pytest.mark.parametrize(("action", "illegal"), [("R", ("team",)), ("U", ("team",)), ("", ()), ("DD", ("team",))])
def test_a_turn_without_a_move_is_wasted_and_paid_so(action: str, illegal: tuple[str, ...]) -> None:
    environment = world(oracle=False)
    step = environment.step({"team": action})
    assert step.rewards["team"] == {"waste": environment.rules.waste}
    assert step.illegal == illegal
    assert (environment.state.cell, environment.state.turn) == ((0, 0), 1)


def test_a_team_may_be_told_of_walls_only_by_those_who_see_them() -> None:
    environment = world(oracle=False)
    assert environment.observe("verifier").fields == {"around": "#.##"}
    assert environment.observe("planner").fields == {"goal": "02"}
    assert environment.observe("executor").fields == {"cell": "00", "last": "-"}
    environment.step({"team": "D"})
    assert environment.observe("feedback").fields == {"around": "o.##"}
