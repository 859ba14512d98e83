"""One life of a process that plays a team whose agents are other processes, with one journal for play and bus.

    python player_worker.py URL JOURNAL [aloud]

Prints what each agent said as soon as it is known; `aloud`: somebody listens while they speak.
"""

import asyncio
import sys
from pathlib import Path

from play_lives import World

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.core.messages import PAYLOADS, Payload
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan
from mas.runtime.payloads import TEAM_PAYLOADS
from mas.runtime.placement import ENVIRONMENT, ProcessRole
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_log import ReplayLog
from mas.runtime.streaming import OnPart
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import Says, plan_of

KINDS = {**PAYLOADS, **TEAM_PAYLOADS, Says.kind: Says}
DIAMOND = ("start -> a", "a -> b", "a -> c", "b -> d", "c -> d", "d -> done")


class Player:
    """Who plays the team, in one of its lives. `comes_back`: its bus has the journal, too."""

    def __init__(self, plan: TeamPlan, *, comes_back: bool, on_part: OnPart | None = None) -> None:
        self.plan, self.world = plan, World(plan)
        self.lines: list[str] = []
        self._comes_back, self._on_part = comes_back, on_part

    async def play(self, url: str, path: Path) -> None:
        engine = ScriptedEngine(lambda role, adapter, seed: "")
        with Journal.open(path) as journal:
            async with MqttBus.connect(url, payloads=KINDS, journal=journal if self._comes_back else None) as bus:
                place = ProcessRole(
                    hosts=frozenset((ENVIRONMENT,)),
                    principal=bus.me.principal,
                    process=bus.me.process,
                    comes_back=self._comes_back,
                )
                runtime = TeamRuntime(self.plan, engine, bus, adapters={}, place=place, log=ReplayLog(journal))
                async with runtime as self.runtime:
                    await runtime.play("e", self.world, self.decide, lambda *_: None)

    async def decide(self, point: DecisionPoint) -> Payload:
        seeds = (derive_seed(point.turn, point.agent),)
        (candidate,) = await self.runtime.ask(point, seeds, episode="e", on_part=self._on_part)
        self.lines.append(f"{point.turn} {candidate.text}")
        print(self.lines[-1], flush=True)
        return candidate.payload


if __name__ == "__main__":
    player = Player(plan_of(DIAMOND), comes_back=True, on_part=str if "aloud" in sys.argv else None)
    asyncio.run(player.play(sys.argv[1], Path(sys.argv[2])))
    print(player.world.state_key(), flush=True)
