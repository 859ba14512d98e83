"""Agents spawned and retired while a team runs, within its limits. Virtual time: nothing waits."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from virtual_time import play

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.environment import Task
from mas.core.errors import Closed, RunError
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.agents import ModelEndpoint
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, look
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

TEAM: dict[str, object] = {
    "name": "t",
    "roles": {"worker": {"type": "executor", "view": "solo", "template": "Q>", "max_tokens": 4}},
    "edges": ["start -> worker", "worker -> done"],
    "output": "worker",
    "replicas": {"worker": {"least": 1, "most": 3, "concurrency": 2}},
}


class Slow(ScriptedEngine):
    """Takes 10 s for an answer, its own letter; counts how many it is at work on."""

    def __init__(self, letter: str) -> None:
        super().__init__(lambda prompt, adapter, seed: letter)
        self.now = self.most = 0

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await asyncio.sleep(10.0)
        finally:
            self.now -= 1
        return await super().generate(request)


class Work:
    """A runtime with one agent, and questions to it."""

    def __init__(self, runtime: TeamRuntime, engine: Slow) -> None:
        self.runtime, self.engine = runtime, engine
        self._environment = build_scenario(ScenarioOptions(name="relay")).environment()
        self._environment.reset(Task(id="train-0", seed=0))

    def ask(self) -> asyncio.Task[tuple[Candidate, ...]]:
        plan = self.runtime.plan
        point = DecisionPoint(
            agent="worker",
            flow=Flow.start(plan).begin("worker"),
            environment=self._environment,
            observations=look(plan, self._environment),
            turn=0,
        )
        return asyncio.create_task(self.runtime.ask(point, (1,), episode="e"), name="ask")


@asynccontextmanager
async def work(**team: object) -> AsyncIterator[Work]:
    spec = load_team(TEAM | team)
    engine, bus = Slow("a"), MemoryBus(clock=asyncio.get_running_loop().time)
    async with TeamRuntime(compile_team(spec, build_roles(spec)), engine, bus, adapters={}) as runtime:
        yield Work(runtime, engine)
    await bus.close()


def now() -> float:
    return asyncio.get_running_loop().time()


def test_each_one_takes_as_many_questions_as_declared_and_a_second_one_shares_the_work() -> None:
    async def whole() -> None:
        async with work() as at:
            await asyncio.gather(*(at.ask() for _ in range(4)))
            assert (now(), at.engine.most) == (20.0, 2)
            assert await at.runtime.spawn("worker") == 2
            await asyncio.gather(*(at.ask() for _ in range(4)))
            assert (now(), at.engine.most) == (30.0, 4)

    play(whole())


def test_one_that_is_spawned_takes_what_waits_and_may_have_an_endpoint_of_its_own() -> None:
    async def whole() -> None:
        async with work() as at:
            asked = [at.ask() for _ in range(3)]
            await asyncio.sleep(5.0)
            assert at.engine.now == 2
            other = Slow("b")
            await at.runtime.spawn("worker", endpoint=ModelEndpoint(engine=other))
            texts = [candidate.text for (candidate,) in await asyncio.gather(*asked)]
            assert texts == ["a", "a", "b"]
            assert now() == 15.0

    play(whole())


def test_one_that_retires_finishes_what_it_has_and_takes_nothing_new_and_no_question_is_lost() -> None:
    async def whole() -> None:
        async with work() as at:
            other = Slow("b")
            await at.runtime.spawn("worker", endpoint=ModelEndpoint(engine=other))
            asked = [at.ask() for _ in range(8)]
            await asyncio.sleep(5.0)
            assert (at.engine.now, other.now) == (2, 2)
            assert await at.runtime.retire("worker") == 1
            assert now() == 10.0, "it had what it had begun to finish"
            assert at.runtime.at_work("worker") == 1
            texts = [candidate.text for (candidate,) in await asyncio.gather(*asked)]
            assert sorted(texts) == ["a"] * 6 + ["b"] * 2
            assert now() == 30.0

    play(whole())


def test_the_limits_hold_also_for_many_at_once() -> None:
    async def whole() -> None:
        async with work() as at:
            spawned = await asyncio.gather(*(at.runtime.spawn("worker") for _ in range(4)), return_exceptions=True)
            assert [type(one) for one in spawned] == [int, int, RunError, RunError]
            assert "agent 'worker' has 3 at work, and 3 are allowed at most: raise 'most'" in str(spawned[-1])
            retired = await asyncio.gather(*(at.runtime.retire("worker") for _ in range(4)), return_exceptions=True)
            assert [type(one) for one in retired] == [int, int, RunError, RunError]
            assert "agent 'worker' has 1 at work, and 1 must be at least: lower 'least'" in str(retired[-1])
            assert at.runtime.at_work("worker") == 1
            with pytest.raises(RunError, match=r"no agent .wroker. works in this process"):
                await at.runtime.spawn("wroker")

    play(whole())


def test_the_least_are_there_from_the_beginning_and_one_is_where_nothing_is_said() -> None:
    async def whole() -> None:
        async with work(replicas={"worker": {"least": 2, "most": 2, "concurrency": 1}}) as at:
            assert at.runtime.at_work("worker") == 2
            with pytest.raises(RunError, match="2 must be at least"):
                await at.runtime.retire("worker")
            await asyncio.gather(at.ask(), at.ask())
            assert now() == 10.0
        async with work(replicas={}) as at:
            with pytest.raises(RunError, match="1 are allowed at most"):
                await at.runtime.spawn("worker")
            await asyncio.gather(*(at.ask() for _ in range(9)))
            assert at.engine.most == 9, "the engine decides how many run together"

    play(whole())


def test_leaving_finishes_what_is_in_hand_and_a_runtime_that_ends_stops_who_is_still_retiring() -> None:
    async def whole() -> None:
        async with work() as at:
            asked = [at.ask(), at.ask()]
            await asyncio.sleep(5.0)
            await at.runtime.leave()
            assert [candidate.text for (candidate,) in await asyncio.gather(*asked)] == ["a", "a"]
        async with work() as at:
            await at.runtime.spawn("worker")
            asked = [at.ask() for _ in range(4)]
            await asyncio.sleep(5.0)
            retiring = asyncio.create_task(at.runtime.retire("worker"), name="retire")
            await asyncio.sleep(1.0)
        await retiring
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(result) for result in results] == [Closed] * 4

    play(whole())
