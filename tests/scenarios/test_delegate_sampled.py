"""`delegate` through the samplers: what a scripted team is paid where no move is made by hand."""

from functools import cache

import pytest
from parts import runtime_of, sample, turns_of

from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.options import ScenarioOptions
from mas.core.records import Turn
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.delegate import DelegateCase, DelegateEnvironment, value
from mas.scenarios.world import FolderScenario
from mas.testing.scripted import Answer, ScriptedEngine

MODES = {
    "tree": {"mode": "tree", "candidates": 2},
    "tree, own terms at once": {"mode": "tree", "candidates": 2, "lookahead": "action"},
    "parallel": {"mode": "parallel", "candidates": 2},
}
PENALTIES = ("own.format", "own.plan", "own.report", "own.failure")
TASKS = range(20)


@cache
def scenario_of(size: str) -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="delegate", options=dict(SCENARIOS["delegate"].sizes[size])))
    assert isinstance(built, FolderScenario)
    return built


def case_of(size: str, index: int) -> DelegateCase:
    environment = scenario_of(size).environment()
    assert isinstance(environment, DelegateEnvironment)
    environment.reset(scenario_of(size).task("train", index))
    return environment.state.case


def told(case: DelegateCase) -> list[str]:
    """What the workers of a perfect team report, in order."""
    return [value(case.documents[at]) for at in case.needed]


def script(case: DelegateCase, parts: tuple[str, ...], reports: list[str]) -> Answer:
    """The planner asks for the parts, whoever works on the case's n-th part reports the n-th report."""

    def answer(prompt: str, adapter: str | None, seed: int) -> str:
        if adapter == "worker":
            asked = prompt.partition(";")[0]
            return next(report for part, report in zip(case.parts, reports, strict=True) if part in asked)
        return "\n".join(parts) if adapter == "planner" else case.answer

    return answer


async def turns_with(size: str, index: int, mode: str, answer: Answer) -> list[Turn]:
    engine = ScriptedEngine(answer, adapters=("planner", "worker", "composer"))
    options = SamplerOptions.model_validate(MODES[mode])
    async with runtime_of(scenario_of(size).teams["team"], engine) as runtime:
        episodes = await sample(runtime, scenario_of(size), [index], options)
    assert {episode.status for episode in episodes} == {"done"}
    return turns_of(episodes)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", ["small", "large"])
async def test_a_perfect_team_pays_no_penalty_in_whatever_order_it_asks(size: str, mode: str) -> None:
    for index in TASKS:
        case = case_of(size, index)
        for parts in (case.parts, case.parts[::-1]):
            turns = await turns_with(size, index, mode, script(case, parts, told(case)))
            instances = {f"worker[{number}]" for number in range(len(parts))}
            assert {turn.agent for turn in turns} == {"planner", "composer", *instances}
            paid = [
                (turn.agent, name, turn.rewards[name]) for turn in turns for name in PENALTIES if name in turn.rewards
            ]
            assert [entry for entry in paid if entry[2] != 0] == []
            assert {name for agent, name, _ in paid if agent in instances} == {"own.format", "own.report"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", ["small", "large"])
async def test_the_worker_that_reports_another_s_number_pays_and_nobody_else(size: str, mode: str) -> None:
    wrong = 0
    for index in TASKS:
        case = case_of(size, index)
        first, *others = told(case)
        reports = [first, first, *others[1:]]
        turns = await turns_with(size, index, mode, script(case, case.parts, reports))
        penalties = {turn.agent: turn.rewards["own.report"] for turn in turns if turn.role == "worker"}
        due = {f"worker[{number}]": 0.0 for number in range(len(reports))}
        assert penalties == due | {"worker[1]": -float(others[0] != first)}
        wrong += others[0] != first
    assert wrong > len(TASKS) / 2
