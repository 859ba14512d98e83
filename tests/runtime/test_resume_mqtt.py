"""A play whose agents are other processes goes on: what was under way is asked there again under the same id."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from lives import World
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.core.engine import Generation, Request
from mas.core.messages import PAYLOADS, Payload
from mas.core.seeds import derive_seed
from mas.graph import Plan
from mas.runtime.agents import TEAM_PAYLOADS
from mas.runtime.play import Point
from mas.runtime.runlog import RunLog
from mas.runtime.team import ENVIRONMENT, Place, TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import Says, plan_of

pytestmark = needs_mosquitto
KINDS = {**PAYLOADS, **TEAM_PAYLOADS, Says.kind: Says}


class Agent(ScriptedEngine):
    """Answers its second question only when it is asked it again."""

    def __init__(self) -> None:
        super().__init__(lambda role, adapter, seed: role)
        self.seeds: list[int] = []
        self.stuck = asyncio.Event()

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.seeds += request.seeds
        if len(self.seeds) == 2:
            self.stuck.set()
            await asyncio.Event().wait()
        return await super().generate(request)


class Player:
    """Who plays the team, in one of its lives."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.world = plan, World(plan)
        self.lines: list[str] = []

    async def play(self, broker: Mosquitto, path: Path) -> None:
        engine = ScriptedEngine(lambda role, adapter, seed: "")
        with Journal.open(path) as journal:
            async with MqttBus.connect(broker.url("player"), payloads=KINDS) as bus:
                place = Place(hosts=frozenset((ENVIRONMENT,)), principal=bus.me.principal, process=bus.me.process)
                runtime = TeamRuntime(self.plan, engine, bus, adapters={}, place=place, log=RunLog(journal))
                async with runtime as self.runtime:
                    await runtime.play("e", self.world, self.decide, lambda *_: None)

    async def decide(self, point: Point) -> Payload:
        (candidate,) = await self.runtime.ask(point, (derive_seed(point.turn, point.agent),), episode="e")
        self.lines.append(f"{point.turn} {candidate.text}")
        return candidate.payload


async def test_an_agent_elsewhere_is_asked_again_under_the_same_id(tmp_path: Path) -> None:
    plan, agent, ids = plan_of(("start -> a", "a -> done")), Agent(), list[str]()
    with running_mosquitto(tmp_path) as broker:
        async with AsyncExitStack() as stack:
            bus = await stack.enter_async_context(MqttBus.connect(broker.url("t%2Fa"), payloads=KINDS))
            bus.tap(lambda envelope: ids.append(envelope.id) if envelope.target == "t/a" else None)
            place = Place(hosts=frozenset(("a",)), principal="t/a", process=bus.me.process)
            await stack.enter_async_context(TeamRuntime(plan, agent, bus, adapters={}, place=place))
            before, after = Player(plan), Player(plan)
            playing = asyncio.create_task(before.play(broker, tmp_path / "bus.sqlite"), name="first life")
            await asyncio.wait_for(agent.stuck.wait(), 60)
            playing.cancel()
            await asyncio.wait([playing])
            await asyncio.wait_for(after.play(broker, tmp_path / "bus.sqlite"), 60)
    first, second = derive_seed(0, "a"), derive_seed(1, "a")
    assert agent.seeds == [first, second, second]
    assert before.lines == ["0 a"]
    assert after.lines == ["0 a", "1 a"]
    assert len(set(ids)) == 2
    assert ids[1:] == [ids[1], ids[1]]
    assert (before.world.steps, after.world.steps) == (1, 1)
