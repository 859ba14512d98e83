"""A training rollout around an engine whose calls take a while, against those calls alone.

The plain loop makes the calls that the rollout made, those together that the rollout made together: what it leaves
out is all that mas does between them. One task at a time: of several at once, what is done for one adds to the
others' waiting.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.bus.graph import relay, say
from benchmarks.bus.options import Amounts
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.memory import MemoryBus
from mas.core.concurrency import together
from mas.core.engine import Generation, Request
from mas.core.errors import RunError
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.tree import TreeSampler

ROLLOUT = "mas: rollout"
PLAIN = "plain loop"


class SlowEngine(ScriptedEngine):
    """Follows the script, a while later.

    Attributes:
        waves: requests since the start; those that were on their way together stand together.
    """

    def __init__(self, call_s: float) -> None:
        super().__init__(say)
        self.waves: list[list[Request]] = []
        self._call_s = call_s
        self._running = 0

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        if self._running == 0:
            self.waves.append([])
        self.waves[-1].append(request)
        self._running += 1
        try:
            await asyncio.sleep(self._call_s)
        finally:
            self._running -= 1
        return await super().generate(request)


class Rollouts:
    """`TreeSampler.sample` with its default options, as `mas train` calls it, task after task."""

    name = ROLLOUT

    def __init__(self, tasks: int, sampler: TreeSampler, scenario: Scenario, engine: SlowEngine) -> None:
        self._tasks = tasks
        self._sampler = sampler
        self._scenario = scenario
        self._environment = scenario.environment()
        self._engine = engine

    async def run(self, number: int) -> int:
        self._engine.waves.clear()
        self._engine.requests.clear()
        for index in range(self._tasks):
            task = self._scenario.task("train", index)
            for episode in await self._sampler.sample(task, self._environment, 0):
                if episode.status != "done" or not episode.turns:
                    raise RunError(f"rollout {index} recorded nothing: {episode.cause}")
        return len(self._engine.requests)


class PlainLoop:
    """The same calls without anything between them."""

    name = PLAIN

    def __init__(self, waves: list[list[Request]], call_s: float) -> None:
        self._waves = waves
        self._engine = SlowEngine(call_s)

    async def run(self, number: int) -> int:
        self._engine.waves.clear()
        self._engine.requests.clear()
        for wave in self._waves:
            await together((self._engine.generate(request) for request in wave), "call")
        return len(self._engine.requests)


@asynccontextmanager
async def open_rollouts(amounts: Amounts) -> AsyncIterator[tuple[Rollouts, PlainLoop]]:
    """The rollout, and the plain loop over the calls that one round of it makes."""
    scenario = relay()
    team, bus, engine = scenario.teams["team"], MemoryBus(), SlowEngine(amounts.call_s)
    plan = compile_team(team, build_roles(team))
    async with TeamRuntime(plan, engine, bus, adapters=dict.fromkeys(team.roles)) as runtime:
        sampler = TreeSampler(runtime, scenario.reward, SamplerOptions(), RewardOptions())
        rollouts = Rollouts(amounts.tasks, sampler, scenario, engine)
        await rollouts.run(0)
        yield rollouts, PlainLoop([list(wave) for wave in engine.waves], amounts.call_s)
    await bus.close()
