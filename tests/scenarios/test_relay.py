"""`relay` and `two_hop`: what nobody can do alone."""

from itertools import product

import pytest

from mas.config.options import ScenarioOptions
from mas.scenarios import build_scenario
from mas.scenarios.relay import KEYS, RelayEnvironment, RelayState
from mas.scenarios.two_hop import SYMBOLS, TwoHopEnvironment, TwoHopState


def test_without_a_message_no_executor_is_right_more_than_one_time_in_four() -> None:
    # The goal is uniform and independent of the table: whatever digit a table is answered with, it is that of the
    # goal for exactly one goal of four. So every executor that knows the table alone is right with 1/4 at most.
    table = "7204"
    right = dict.fromkeys("0123456789", 0)
    for goal, digit in product(range(len(KEYS)), right):
        environment = RelayEnvironment()
        environment._state = RelayState(goal, table)
        environment.step({"team": digit})
        right[digit] += environment.success()
    assert max(right.values()) / len(KEYS) == 0.25
    assert sum(right.values()) == len(KEYS)


def test_goals_are_uniform_whatever_the_table() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    environment = scenario.environment()
    firsts = []
    for index in range(800):
        environment.reset(scenario.task("eval", index))
        firsts.append(environment.observe("planner").fields["goal"])
    # Four standard deviations of a share of 800: 4 sqrt(1/4 x 3/4 / 800) = 0.061.
    for key in KEYS:
        assert firsts.count(key) / len(firsts) == pytest.approx(0.25, abs=0.062)


def test_the_executor_of_relay_sees_the_same_for_every_goal() -> None:
    environment = RelayEnvironment()
    seen = set()
    for goal in range(len(KEYS)):
        environment._state = RelayState(goal, "7204")
        seen.add(tuple(environment.observe("executor").fields.items()))
    assert seen == {(("table", "7204"),)}


def test_two_hop_is_solved_by_two_hops_and_by_no_single_one() -> None:
    scenario = build_scenario(ScenarioOptions(name="two_hop"))
    environment = scenario.environment()
    assert isinstance(environment, TwoHopEnvironment)
    for index in range(100):
        environment.reset(scenario.task("train", index))
        state: TwoHopState = environment.state
        once = state.hop(state.x)
        outcomes = {}
        for answer in SYMBOLS:
            twin = environment.clone()
            twin.step({"team": answer})
            outcomes[answer] = twin.success()
        assert [answer for answer, solved in outcomes.items() if solved] == [state.hop(once)]
        assert not outcomes[once]
        assert not outcomes[state.x]


@pytest.mark.parametrize("action", ["72", "x", "9"])
def test_an_answer_that_is_no_digit_of_the_table_is_illegal(action: str) -> None:
    environment = RelayEnvironment()
    environment._state = RelayState(0, "7204")
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"right": 0.0}
