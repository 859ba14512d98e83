"""Time limits of joins: counted by a clock that the test moves, and kept by a team at work."""

import asyncio
from collections.abc import Awaitable

import pytest
from steps import said_all, say

from mas.config.options import ScenarioOptions
from mas.core.environment import Observation
from mas.core.errors import RunError
from mas.core.messages import Note, Payload
from mas.runtime.flow import Flow
from mas.runtime.play import Decide, DecisionPoint, play_turn
from mas.runtime.timing import JoinTimers
from mas.scenarios import build_scenario
from mas.testing.teams import plan_of

PANEL = ("start -> a", "start -> b", "a -> j", "b -> j", "j -> done")


def watched(timers: JoinTimers, flow: Flow, now_s: float) -> float | None:
    return timers.watch(flow.waiting_joins(), flow.plan.timeouts, now_s)


def test_a_limit_begins_with_the_first_live_branch_and_is_over_in_time() -> None:
    timers, flow = JoinTimers(), Flow.start(plan_of(PANEL, "j", {"j": {"timeout_s": 5}}))
    assert watched(timers, flow, 100.0) is None
    flow = say(flow, "a")
    assert watched(timers, flow, 103.0) == 5.0
    assert watched(timers, flow, 105.0) == 3.0
    assert timers.over(107.9) == ()
    assert timers.over(108.0) == ("j",)
    assert flow.expire("j").ready() == ("b", "j")


def test_a_limit_ends_with_the_wait_and_begins_anew_with_the_next() -> None:
    edges = ("start -> s", "s -> a", "s -> b", "a -> j", "b -> j", "j -> s when again loop 1", "j -> done when on")
    flow = said_all(plan_of(edges, joins={"j": {"timeout_s": 5}}), ("s", "x"), ("a", "x"))
    timers = JoinTimers()
    assert watched(timers, flow, 0.0) == 5.0
    flow = say(flow, "b")
    assert watched(timers, flow, 1.0) is None
    flow = say(say(say(flow, "j", "again"), "s"), "b")
    assert watched(timers, flow, 9.0) == 5.0


def test_of_two_limits_the_first_counts_and_joins_without_one_are_left_alone() -> None:
    edges = [*(f"start -> {n}" for n in "abcd"), "a -> j", "b -> j", "c -> k", "d -> k", "c -> m", "d -> m"]
    edges += ["j -> done", "k -> done", "m -> done"]
    joins = {"j": {"timeout_s": 5}, "k": {"timeout_s": 3}}
    flow = said_all(plan_of(edges, "j", joins), ("a", "x"), ("c", "x"))
    timers = JoinTimers()
    assert watched(timers, flow, 0.0) == 3.0
    assert timers.over(4.0) == ("k",)
    assert timers.over(6.0) == ("k", "j")


async def played(join: object, decide: Decide) -> Flow:
    plan = plan_of(PANEL, "j", {"j": join, "done": "any"})
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    seen = dict.fromkeys(plan.agents, Observation({}))
    return await play_turn(Flow.start(plan), environment, seen, 0, decide)


async def test_a_team_at_work_goes_on_without_who_is_too_slow() -> None:
    stopped: list[str] = []

    async def decide(point: DecisionPoint) -> Payload:
        if point.agent == "b":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                stopped.append(point.agent)
                raise
        return Note(text=",".join(message.sender for message in point.view.messages))

    flow = await played({"timeout_s": 0.02}, decide)
    assert flow.outputs["j"] == Note(text="a")
    assert "b" not in flow.outputs
    assert stopped == ["b"]


async def test_a_team_at_work_waits_no_longer_than_it_must() -> None:
    async def decide(point: DecisionPoint) -> Payload:
        return Note(text=",".join(message.sender for message in point.view.messages))

    flow = await asyncio.wait_for(played({"timeout_s": 3600}, decide), 30)
    assert flow.outputs["j"] == Note(text="a,b")
    assert flow.committed


async def test_an_error_of_an_agent_ends_a_timed_turn_and_stops_the_others() -> None:
    stopped = asyncio.Event()

    def decide(point: DecisionPoint) -> Awaitable[Payload]:
        return fail() if point.agent == "a" else wait()

    async def fail() -> Payload:
        raise RunError("broken")

    async def wait() -> Payload:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return Note(text="x")

    with pytest.raises(RunError, match="broken"):
        await played({"timeout_s": 3600}, decide)
    assert stopped.is_set()
