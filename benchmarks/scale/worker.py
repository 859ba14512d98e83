"""A rollout worker without weights: the rollout and the team are those of training, the engine follows a script.

Nothing here loads a tensor library, so that the memory of a worker is that of the rollout alone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random

import msgspec

from mas.bus.memory import MemoryBus
from mas.config.options import Config
from mas.core.engine import Generation, Request
from mas.runs.resolve import resolve, with_tasks
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.training.rollout import Rollout
from mas.training.setup import plan_tasks
from mas.training.tasks.plan import TaskOrder

FACTORY = "benchmarks.scale.worker:make"
_SIGNALS = "abcd"
"""What the planner of `relay` says: one of them."""


class ScriptedSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is made of. `config`: as JSON; `call_s`: seconds that a call of the engine takes."""

    config: str
    call_s: float


def say(prompt: str, adapter: str | None, seed: int) -> str:
    """The script of `relay`: a planner (`PB>`) draws a letter, an executor (`E0123;b>`) a digit of its table."""
    return Random(seed).choice(prompt[1:5] if prompt[0] == "E" else _SIGNALS)


class FixedLatencyEngine(ScriptedEngine):
    """Follows the script of `relay`. Every call takes the same time, however many there are at once."""

    def __init__(self, call_s: float) -> None:
        super().__init__(say)
        self._call_s = call_s

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        await asyncio.sleep(self._call_s)
        self.requests.clear()
        return await super().generate(request)


@asynccontextmanager
async def open_player(setup: ScriptedSetup) -> AsyncIterator[tuple[Rollout, TeamRuntime]]:
    """The rollout, and the team that plays it."""
    config = Config.model_validate_json(setup.config)
    resolved = with_tasks(config, resolve(config))
    bus, engine = MemoryBus(), FixedLatencyEngine(setup.call_s)
    try:
        async with TeamRuntime(resolved.plan, engine, bus, adapters=dict.fromkeys(resolved.team.roles)) as runtime:
            yield Rollout(resolved, plan_tasks(resolved)), runtime
    finally:
        await bus.close()


class ScriptedWorker:
    """Plays orders as `mas.runs.rollout_worker.RolloutWorker` does."""

    def __init__(self, rollout: Rollout, runtime: TeamRuntime, stack: AsyncExitStack) -> None:
        self._rollout, self._runtime, self._stack = rollout, runtime, stack

    async def play(self, payload: bytes) -> bytes:
        """The episodes of an order, in MessagePack."""
        order = msgspec.json.decode(payload, type=TaskOrder)
        self._runtime.use_adapters(order.speaking)
        return msgspec.msgpack.encode(await self._rollout.play_order(self._runtime, order))

    async def close(self) -> None:
        """End the team."""
        await self._stack.aclose()


async def make(arguments: bytes) -> ScriptedWorker:
    """A worker; `arguments`: a ScriptedSetup in JSON."""
    async with AsyncExitStack() as stack:
        opened = open_player(msgspec.json.decode(arguments, type=ScriptedSetup))
        rollout, runtime = await stack.enter_async_context(opened)
        return ScriptedWorker(rollout, runtime, stack.pop_all())
