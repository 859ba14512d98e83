"""Agents at work: what ends an answer that does not come, and what an agent's text is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.environment import Task
from mas.core.errors import Expired, MasError, RemoteError
from mas.core.messages import Payload
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.roles.base import PromptedRole
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, look
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

SOLO = {
    "name": "solo",
    "roles": {"solo": {"type": "agent", "emits": "action", "view": "solo", "template": "Q>", "max_tokens": 4}},
    "edges": ["start -> solo", "solo -> done"],
    "output": "solo",
}


class Broken(PromptedRole):
    """Fails on what it reads."""

    def parse(self, text: str) -> Payload:
        raise KeyError(text)


class Stuck(ScriptedEngine):
    """Never answers, and notes when it is told to stop."""

    stopped = False

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.stopped = True
            raise
        raise AssertionError("waited for nothing")


def solo(**role: object) -> TeamSpec:
    return load_team(SOLO | {"roles": {"solo": SOLO["roles"]["solo"] | role}})


@asynccontextmanager
async def playing(spec: TeamSpec, engine: ScriptedEngine, timeout_s: float | None = None) -> AsyncIterator[TeamRuntime]:
    bus = MemoryBus()
    plan = compile_team(spec, build_roles(spec))
    async with TeamRuntime(plan, engine, bus, adapters={}, timeout_s=timeout_s) as runtime:
        yield runtime
    await bus.close()


def point_of(runtime: TeamRuntime) -> DecisionPoint:
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(Task(id="train-0", seed=0))
    flow = Flow.start(runtime.plan).begin("solo")
    return DecisionPoint(
        agent="solo", flow=flow, environment=environment, observations=look(runtime.plan, environment), turn=0
    )


@pytest.mark.parametrize("is_imagined", [False, True])
async def test_an_answer_that_does_not_come_expires_and_its_generation_is_stopped(is_imagined: bool) -> None:
    engine = Stuck(lambda *_: "x")
    async with playing(solo(), engine, timeout_s=0.05) as runtime:
        point = point_of(runtime)
        with pytest.raises(Expired):
            await (runtime.sample_locally(point, 1) if is_imagined else runtime.ask(point, (1,), episode="e"))
        await asyncio.sleep(0)
    assert engine.stopped


@pytest.mark.parametrize("is_imagined", [False, True])
async def test_an_error_in_a_users_role_reaches_the_caller_as_a_mas_error(is_imagined: bool) -> None:
    spec = solo(type=f"{__name__}:Broken")
    async with playing(spec, ScriptedEngine(lambda *_: "x")) as runtime:
        point = point_of(runtime)
        with pytest.raises(RemoteError, match="KeyError: 'x'") as caught:
            await (runtime.sample_locally(point, 1) if is_imagined else runtime.ask(point, (1,), episode="e"))
    assert isinstance(caught.value, MasError)


async def test_a_cancelled_ask_stops_the_generation() -> None:
    engine = Stuck(lambda *_: "x")
    async with playing(solo(), engine) as runtime:
        asked = asyncio.create_task(runtime.ask(point_of(runtime), (1,), episode="e"), name="ask")
        for _ in range(20):
            await asyncio.sleep(0)
        asked.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        assert engine.stopped


async def test_the_stop_text_of_a_role_is_no_part_of_its_answer() -> None:
    spec = solo(stop=["!"], choices=["ja"])
    async with playing(spec, ScriptedEngine(lambda *_: "ja!")) as runtime:
        (candidate,) = await runtime.ask(point_of(runtime), (1,), episode="e")
    assert candidate.text == "ja"
    assert candidate.payload.content == "ja"
    assert len(candidate.generation.token_ids) == 3, "the stop token is trained all the same"
