"""A team over buses of one process: scripted engines instead of a base, so that it plays at once."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from between import until
from mosquitto import Mosquitto

import mas.scenarios.relay
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.options import Config, ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve
from mas.runtime.flow import Flow
from mas.runtime.payloads import Candidate
from mas.runtime.play import DecisionPoint, look
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.distributed import serve_agent
from mas.training.session import Shared, TeamSession
from mas.training.setup import Setup

TEAM = Path(mas.scenarios.relay.__file__).with_name("team.yaml")
CONFIG = Config(scenario=ScenarioOptions(name="relay"))


def relay() -> Scenario:
    return build_scenario(CONFIG.scenario)


def with_replicas(folder: Path, **limits: int) -> Config:
    """The relay's team, whose planner has limits."""
    team = yaml.safe_load(TEAM.read_text()) | {"replicas": {"planner": limits}}
    (folder / "team.yaml").write_text(yaml.safe_dump(team))
    return CONFIG.model_copy(update={"algorithm": AlgorithmOptions(team=str(folder / "team.yaml"))})


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


@asynccontextmanager
async def serving(
    name: str, broker: Mosquitto, config: Config = CONFIG, said: list[str] | None = None
) -> AsyncIterator["asyncio.Task[None]"]:
    """`serve_agent` once it speaks; cancelled at the end if it has not ended."""
    notes = [] if said is None else said
    url = broker.url(f"relay%2F{name}")
    task = asyncio.create_task(serve_agent(name, resolve(config, relay()), None, url, notes.append), name=name)
    try:
        await until(lambda: task.done() or any("serves on the bus" in note for note in notes))
        yield task
    finally:
        task.cancel()
        await asyncio.wait((task,))


def asked(players: TeamSession, agent: str, seed: int) -> "asyncio.Task[tuple[Candidate, ...]]":
    """A question to an agent at the beginning of an episode."""
    environment = players.scenario.environment()
    environment.reset(players.scenario.task("eval", 0))
    point = DecisionPoint(
        agent=agent,
        flow=Flow.start(players.plan),
        environment=environment,
        observations=look(players.plan, environment),
        turn=0,
    )
    return asyncio.create_task(players.runtime.ask(point, (seed,), episode="e"), name=f"ask {agent}")


def without_a_base(monkeypatch: pytest.MonkeyPatch, engine: Callable[[str], ScriptedEngine]) -> None:
    """Let `serve_agent` and `open_distributed` use scripted engines; `engine`: agent -> its engine."""
    tokenizer = ScriptedEngine(lambda prompt, adapter, seed: "").tokenizer
    text = SimpleNamespace(tokenizer=tokenizer, stop_ids=(), chats=False)
    monkeypatch.setattr("mas.training.distributed.model_text", lambda model: text)

    @asynccontextmanager
    async def players(
        setup: Setup, run: object, note: object, desk: Any, *, shared: Shared
    ) -> AsyncIterator[TeamSession]:
        (name,) = shared.place.hosts
        async with TeamRuntime(
            setup.plan, engine(name), shared.bus, adapters={}, desk=desk, place=shared.place
        ) as runtime:
            yield TeamSession(setup=setup, runtime=runtime)

    monkeypatch.setattr("mas.training.distributed.open_run", players)
