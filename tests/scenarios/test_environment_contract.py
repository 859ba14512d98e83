"""Every built-in environment and reward against its contract."""

from collections.abc import Iterable, Mapping
from random import Random

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.messages import Action, Failure, Feedback, Payload, Plan, Verdict
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.scenarios.plan_path import MOVES
from mas.testing.environment import EnvironmentContract, choose
from mas.testing.reward import RewardContract


class OfScenario(EnvironmentContract):
    """The environment of a built-in scenario."""

    options = ScenarioOptions(name="relay")

    @pytest.fixture(autouse=True)
    def _scenario(self) -> None:
        self.scenario: Scenario = build_scenario(self.options)

    def make_environment(self) -> Environment:
        return self.scenario.environment()

    def task(self, number: int) -> Task:
        return self.scenario.task("train", number)


class TestRelay(OfScenario):
    privacy: Mapping[str, frozenset[str]] = {"planner": frozenset({"goal"}), "executor": frozenset({"table"})}


class TestTwoHop(OfScenario):
    options = ScenarioOptions(name="two_hop")
    privacy: Mapping[str, frozenset[str]] = {"executor": frozenset({"table", "lookup"})}


PATH_PRIVACY = {
    "planner": frozenset({"goal"}),
    "executor": frozenset({"cell", "last"}),
    "verifier": frozenset({"around"}),
    "feedback": frozenset({"around"}),
}


class TestPlanPath(OfScenario):
    options = ScenarioOptions(name="plan_path")
    privacy: Mapping[str, frozenset[str]] = PATH_PRIVACY


class TestPlanPathWithOracle(OfScenario):
    options = ScenarioOptions(name="plan_path", options={"size": 6, "walls": 9, "oracle": True, "max_turns": 7})
    privacy: Mapping[str, frozenset[str]] = PATH_PRIVACY


class TestPathReward(RewardContract):
    def make_reward(self) -> Reward:
        return build_scenario(ScenarioOptions(name="plan_path")).reward

    def moves(self) -> Iterable[Move]:
        scenario = build_scenario(ScenarioOptions(name="plan_path"))
        for number in range(5):
            environment, random = scenario.environment(), Random(number)
            environment.reset(scenario.task("train", number))
            for _ in range(3):
                environment.step(choose(environment, random))
                if not environment.to_move():
                    break
                for move in (*MOVES, None):
                    yield from _moves(environment, move)


def _moves(environment: Environment, move: str | None) -> Iterable[Move]:
    failure = Failure(text="?!", cause="nonsense")
    proposal: Payload = Action(text=move) if move else failure
    outputs: dict[str, list[Payload]] = {
        "planner": [Plan(text="00"), failure],
        "executor": [proposal],
        "verifier": [Verdict(text="y", accept=True), Verdict(text="n", accept=False), failure],
        "feedback": [Feedback(text="U"), failure],
        "solo": [proposal],
    }
    for role, said in outputs.items():
        for output in said:
            for after in ({}, {"executor": Action(text="U")}, {"executor": failure}):
                before = {"executor": proposal}
                yield Move(agent=role, role=role, environment=environment, output=output, before=before, after=after)
