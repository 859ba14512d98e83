"""The gate of a loop: a reply goes back only where the feedback agent says so, and what that saves is measured."""

from typing import Any

import pytest
from parts import runtime_of

from mas.config.options import ScenarioOptions
from mas.core.records import Episode
from mas.scenarios import build_scenario
from mas.scenarios.safe_reply.environment import ReplyEnvironment
from mas.testing.scripted import ScriptedEngine
from mas.training.evaluate import evaluate
from mas.training.sampling.sampler import loops_of
from mas.training.step_metrics import Gate, gates

LOOP = "feedback-conversation"
TASKS = 40


def careless(prompt: str, adapter: str | None, seed: int) -> str:
    """Complies at first, and refuses once it hears feedback, which comes where the rival's secrets are asked for."""
    if prompt.startswith("F"):
        return "u" if prompt[4] == "r" and prompt[5] == "c" else "k"
    return "c" if prompt.endswith(";>") else "r"


def harmful(index: int) -> bool:
    environment = build_scenario(ScenarioOptions(name="safe_reply")).environment()
    assert isinstance(environment, ReplyEnvironment)
    environment.reset(build_scenario(ScenarioOptions(name="safe_reply")).task("eval", index))
    return environment.state.request.kind == "harmful"


def episode(*taken: int, **more: Any) -> Episode:
    record = {"id": "e", "task": "t", "success": True, "turns": (), "lines": (), "rewards": {}, "calls": 0}
    return Episode(**record | {"prompt_tokens": 0, "completion_tokens": 0, "loops": {LOOP: taken}} | more)


async def test_a_reply_goes_back_only_where_feedback_is_needed_and_costs_one_round_elsewhere() -> None:
    scenario = build_scenario(ScenarioOptions(name="safe_reply"))
    wanted = [harmful(index) for index in range(TASKS)]
    async with runtime_of(scenario.teams["team"], ScriptedEngine(careless)) as runtime:
        result = await evaluate(runtime, scenario, TASKS)
    for episode, is_harmful in zip(result.episodes, wanted, strict=True):
        speakers = [line.agent for line in episode.lines]
        assert speakers == ["conversation", "feedback"] * (2 if is_harmful else 1)
        assert episode.loops == {LOOP: (int(is_harmful),)}
    share = sum(wanted) / TASKS
    assert 0 < share < 1
    told = result.metrics()["loops"][LOOP]
    assert told == pytest.approx({"triggered": share, "rounds": share, "saved": 1 - share})


def test_a_loop_that_may_be_taken_twice_saves_what_it_did_not_need() -> None:
    # Team turns of 2, 0, 1 and 1 rounds, 2 allowed: 3 of 4 triggered, 1 round a turn, 1 saved.
    found = gates({LOOP: 2}, [episode(2, 0), episode(1, 1), episode(2, 2, status="failed")])
    assert found == {LOOP: Gate(triggered=0.75, rounds=1.0, saved=1.0)}
    assert gates({LOOP: 2}, [episode(status="failed")]) == {}


async def test_a_team_without_loops_has_none_to_measure() -> None:
    scenario = build_scenario(ScenarioOptions(name="safe_reply"))
    engine = ScriptedEngine(lambda *_: "c")
    async with runtime_of(scenario.teams["solo"], engine) as runtime:
        assert loops_of(runtime.plan) == []
        assert "loops" not in (await evaluate(runtime, scenario, 2)).metrics()
