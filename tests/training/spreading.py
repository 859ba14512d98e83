"""A team over buses of one process: scripted engines instead of a base, so that it plays at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mas.config.options import Config, ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.scenario import Scenario
from mas.graph.find import find_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.crew import Players, Shared

CONFIG = Config(scenario=ScenarioOptions(name="relay"))


def relay() -> Scenario:
    return build_scenario(CONFIG.scenario)


class Held(ScriptedEngine):
    """Answers `a` when it is let; counts what it began, ended and what was cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda prompt, adapter, seed: "a" if prompt.startswith("P") else "7")
        self.let = asyncio.Event()
        self.let.set()
        self.begun = self.ended = self.cancelled = 0

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.begun += 1
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return await super().generate(request)


def without_a_base(monkeypatch: pytest.MonkeyPatch, engine: Callable[[str], ScriptedEngine]) -> None:
    """Let `serve_agent` and `open_spread` speak through scripted engines; `engine`: agent -> its engine."""
    tokenizer = ScriptedEngine(lambda prompt, adapter, seed: "").tokenizer
    text = SimpleNamespace(tokenizer=tokenizer, stop_ids=(), chats=False)
    monkeypatch.setattr("mas.training.spread.model_text", lambda model: text)

    @asynccontextmanager
    async def players(
        config: Config, scenario: Scenario, run: object, note: object, desk: Any, *, shared: Shared
    ) -> AsyncIterator[Players]:
        spec = find_team(scenario, config.algorithm.team)
        plan = compile_team(spec, build_roles(spec))
        (name,) = shared.place.hosts
        async with TeamRuntime(plan, engine(name), shared.bus, adapters={}, desk=desk, place=shared.place) as runtime:
            yield Players(scenario=scenario, plan=plan, runtime=runtime)

    monkeypatch.setattr("mas.training.spread.open_players", players)
