"""A training rollout around an engine that says what anybody may say, and whose calls take a while.

What is measured is the time in which no call was under way: all that mas and the scenario do while nobody generates.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from benchmarks.scenarios.options import ROLLOUT, Amounts
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.memory import MemoryBus
from mas.core.engine import Generation, Request
from mas.core.environment import Environment
from mas.core.errors import RunError
from mas.core.role import Role
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.roles.build import random_answer
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.training.sampling.tree import TreeSampler

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
"""What roles are heard to say that may say anything: one of them."""


class ChanceEngine(ScriptedEngine):
    """Every role says what `random_answer` draws, one call's time later. A role is told by its adapter's name.

    A role's limits on what is drawn are taken to hold: nothing is learned from what it says.

    Attributes:
        busy_s: seconds in which a call was under way, since the engine was made.
    """

    restricts = True

    def __init__(self, team: TeamSpec, environment: Environment, call_s: float) -> None:
        self._roles = build_roles(team)
        super().__init__(self._say, adapters=tuple(self._roles))
        self._environment, self._seat = environment, team.seat
        self._call_s = call_s
        self._running, self._since = 0, 0.0
        self.busy_s = 0.0

    def _say(self, prompt: str, adapter: str | None, seed: int) -> str:
        role: Role = self._roles[adapter or ""]
        legal = self._environment.legal(self._seat) if self._environment.to_move() else None
        random = Random(seed)
        return random_answer(role, random, legal or ()) or random.choice(_LETTERS)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        if self._running == 0:
            self._since = time.perf_counter()
        self._running += 1
        try:
            await asyncio.sleep(self._call_s)
            return await super().generate(request)
        finally:
            self._running -= 1
            if self._running == 0:
                self.busy_s += time.perf_counter() - self._since


class Rollouts:
    """`TreeSampler.sample` with its default options, as `mas train` calls it, task after task.

    Attributes:
        outside: of each round, the share of its time in which no call of the engine was under way.
    """

    name = ROLLOUT

    def __init__(
        self, tasks: int, sampler: TreeSampler, scenario: Scenario, environment: Environment, engine: ChanceEngine
    ) -> None:
        self._tasks = tasks
        self._sampler = sampler
        self._scenario = scenario
        self._environment = environment
        self._engine = engine
        self.outside: list[float] = []

    async def run(self, number: int) -> int:
        engine = self._engine
        engine.requests.clear()
        busy_s, began = engine.busy_s, time.perf_counter()
        for index in range(self._tasks):
            task = self._scenario.task("train", index)
            for episode in await self._sampler.sample(task, self._environment, 0):
                if episode.status != "done" or not episode.turns:
                    raise RunError(f"rollout {index} of {self._scenario.name} recorded nothing: {episode.cause}")
        took = time.perf_counter() - began
        self.outside.append(1 - (engine.busy_s - busy_s) / took)
        return len(engine.requests)


@asynccontextmanager
async def open_rollouts(scenario: Scenario, amounts: Amounts) -> AsyncIterator[Rollouts]:
    """The scenario's `team` at work on a bus of its own."""
    team, bus, environment = scenario.teams["team"], MemoryBus(), scenario.environment()
    engine = ChanceEngine(team, environment, amounts.call_s)
    plan = compile_team(team, build_roles(team))
    async with TeamRuntime(plan, engine, bus, adapters={name: name for name in team.roles}) as runtime:
        sampler = TreeSampler(runtime, scenario.reward, SamplerOptions(), RewardOptions())
        yield Rollouts(amounts.tasks, sampler, scenario, environment, engine)
    await bus.close()
