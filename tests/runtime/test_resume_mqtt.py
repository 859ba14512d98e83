"""A play whose agents are other processes goes on: what was under way is asked there again under the same id."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import player_worker
import pytest
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto
from player_worker import DIAMOND, KINDS, Player

from mas.bus.mqtt import MqttBus
from mas.core.engine import Generation, Request
from mas.core.errors import Halted
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan
from mas.runtime.placement import ProcessRole
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import plan_of

pytestmark = needs_mosquitto
WORKER = Path(player_worker.__file__)
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
LINES = ["0 a", "0 b", "0 c", "0 d", "1 a", "1 b", "1 c", "1 d"]


class Agent(ScriptedEngine):
    """Says its role. It holds one of its questions, the first time that it is asked that, until it is let go on."""

    def __init__(self, holds: int | None = None) -> None:
        super().__init__(lambda role, adapter, seed: role)
        self.seeds: list[int] = []
        self.is_stuck, self.may_go_on = asyncio.Event(), asyncio.Event()
        self._holds = holds

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.seeds += request.seeds
        if self._holds in request.seeds and self.seeds.count(request.seeds[0]) == 1:
            self.is_stuck.set()
            await self.may_go_on.wait()
        return await super().generate(request)


@asynccontextmanager
async def speaking(broker: Mosquitto, plan: TeamPlan, agents: dict[str, Agent]) -> AsyncIterator[list[MqttBus]]:
    """The agents, each on a bus of its own."""
    async with AsyncExitStack() as stack:
        buses = []
        for name, agent in agents.items():
            bus = await stack.enter_async_context(MqttBus.connect(broker.url(f"t%2F{name}"), payloads=KINDS))
            place = ProcessRole(hosts=frozenset((name,)), principal=f"t/{name}", process=bus.me.process)
            await stack.enter_async_context(TeamRuntime(plan, agent, bus, adapters={}, place=place))
            buses.append(bus)
        yield buses


async def life(broker: Mosquitto, path: Path, *how: str) -> Process:
    """The player as a process of its own."""
    command = (sys.executable, str(WORKER), broker.url("player"), str(path), *how)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, env=ENVIRONMENT)


async def said(process: Process) -> list[str]:
    """All lines of a process that has ended."""
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return out.decode().splitlines()


async def test_an_agent_elsewhere_is_asked_again_under_the_same_id(tmp_path: Path) -> None:
    first, second = derive_seed(0, "a"), derive_seed(1, "a")
    plan, agent, ids = plan_of(("start -> a", "a -> done")), Agent(holds=second), list[str]()
    before, after = (Player(plan, comes_back=False) for _ in range(2))
    with running_mosquitto(tmp_path) as broker:
        async with speaking(broker, plan, {"a": agent}) as (bus,):
            bus.tap(lambda envelope: ids.append(envelope.id) if envelope.target == "t/a" else None)
            playing = asyncio.create_task(before.play(broker.url("player"), tmp_path / "bus.sqlite"), name="first life")
            await asyncio.wait_for(agent.is_stuck.wait(), 60)
            playing.cancel()
            await asyncio.wait([playing])
            await asyncio.wait_for(after.play(broker.url("player"), tmp_path / "bus.sqlite"), 60)
    assert agent.seeds == [first, second, second]
    assert before.lines == ["0 a"]
    assert after.lines == ["0 a", "1 a"]
    assert len(set(ids)) == 2
    assert ids[1:] == [ids[1], ids[1]]
    assert (before.world.steps, after.world.steps) == (1, 1)


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("is_answered_meanwhile", [True, False])
async def test_after_a_kill_what_was_under_way_is_joined_and_nobody_is_asked_twice(
    tmp_path: Path, is_answered_meanwhile: bool
) -> None:
    plan = plan_of(DIAMOND)
    agents = {name: Agent(holds=derive_seed(1, "b")) for name in "abcd"}
    held = agents["b"]
    with running_mosquitto(tmp_path) as broker:
        async with speaking(broker, plan, agents):
            first = await life(broker, tmp_path / "bus.sqlite")
            await asyncio.wait_for(held.is_stuck.wait(), 60)
            first.kill()
            lines = await said(first)
            # b and c are asked side by side, and d after both.
            assert len(lines) == len(set(lines))
            assert {*LINES[:5]} <= {*lines} <= {*LINES[:5], "1 c"}
            if is_answered_meanwhile:
                held.may_go_on.set()
            second = await life(broker, tmp_path / "bus.sqlite")
            assert second.stdout is not None
            again = [(await second.stdout.readline()).decode().strip() for _ in range(5)]
            held.may_go_on.set()
            again += await said(second)
            undisturbed = await said(await life(broker, tmp_path / "undisturbed.sqlite"))
    assert sorted(again) == sorted(undisturbed)
    assert sorted(again[:-1]) == sorted(LINES)
    # Once for the play that was killed, once for the one that was not.
    assert {name: agent.seeds for name, agent in agents.items()} == {
        name: [derive_seed(0, name), derive_seed(1, name)] * 2 for name in agents
    }


@pytest.mark.parametrize("comes_back", [True, False])
async def test_a_play_that_was_stopped_in_the_middle_goes_on(tmp_path: Path, comes_back: bool) -> None:
    first, second = derive_seed(0, "a"), derive_seed(1, "a")
    plan, agent = plan_of(("start -> a", "a -> done")), Agent(holds=second)
    before, after = (Player(plan, comes_back=comes_back) for _ in range(2))
    with running_mosquitto(tmp_path) as broker:
        async with speaking(broker, plan, {"a": agent}):
            playing = asyncio.create_task(before.play(broker.url("player"), tmp_path / "bus.sqlite"), name="first life")
            await asyncio.wait_for(agent.is_stuck.wait(), 60)
            await before.runtime.cancel()
            with pytest.raises(Halted):
                await playing
            await asyncio.wait_for(after.play(broker.url("player"), tmp_path / "bus.sqlite"), 60)
    assert agent.seeds == [first, second, second]
    assert (before.lines, after.lines) == (["0 a"], ["0 a", "1 a"])


async def test_who_listened_before_the_kill_and_does_not_now_joins_the_same_question(tmp_path: Path) -> None:
    plan, after = plan_of(DIAMOND), Player(plan_of(DIAMOND), comes_back=True)
    agents = {name: Agent(holds=derive_seed(0, "a")) for name in "abcd"}
    with running_mosquitto(tmp_path) as broker:
        async with speaking(broker, plan, agents):
            first = await life(broker, tmp_path / "bus.sqlite", "aloud")
            await asyncio.wait_for(agents["a"].is_stuck.wait(), 60)
            first.kill()
            await said(first)
            agents["a"].may_go_on.set()
            await asyncio.wait_for(after.play(broker.url("player"), tmp_path / "bus.sqlite"), 60)
    assert sorted(after.lines) == LINES
    assert agents["a"].seeds == [derive_seed(0, "a"), derive_seed(1, "a")]
