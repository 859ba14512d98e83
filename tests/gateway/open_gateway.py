"""A gateway without training around it: a queue, and an application that is asked without a network."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from clients import client, offer
from starlette.applications import Starlette

from mas.core.records import Episode
from mas.core.scenario import Pick
from mas.endpoint.client_keys import Entrance
from mas.endpoint.models import RoleModel
from mas.gateway.queue import EpisodeQueue
from mas.gateway.recorder import GatewayRecorder
from mas.gateway.serving import GatewayLimits, gateway_app
from mas.scenarios.program import ListedProgramScenario, ProgramOptions, ProgramScenario
from mas.testing.scripted import Answer, ScriptedEngine
from mas.training.tasks.plan import OWN, Arm, TaskOrder

ROLES = ("finder", "reader")
ROWS: Mapping[Any, Sequence[Mapping[str, Any]]] = {
    "train": [{"q": "one"}, {"q": "two"}, {"q": "three"}],
    "eval": [{"q": "four"}, {"q": "five"}],
}


async def until(holds: Callable[[], bool]) -> None:
    """Wait for something that a request does."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.005)


def backwards(prompt: str, adapter: str | None, seed: int) -> str:
    """Who was asked with which seed, and the prompt backwards."""
    return f"{adapter or 'base'} {seed % 1000} {prompt[::-1]}"


@dataclass
class OpenGateway:
    """What a test asks and looks at. `now`: seconds, as the queue sees them."""

    queue: EpisodeQueue
    app: Starlette
    engine: ScriptedEngine
    http: httpx.AsyncClient
    now: list[float] = field(default_factory=lambda: [0.0])

    def play(self, index: int, seed: int = 1) -> "asyncio.Task[Sequence[Episode]]":
        """A task of a step."""
        order = TaskOrder(step=0, pick=Pick(OWN, index), seed=seed, speaking={})
        return asyncio.create_task(self.queue.play(order))  # type: ignore[arg-type]

    async def lease(self, **body: str) -> dict[str, Any]:
        """An episode."""
        answer = await self.http.post("/v1/episodes", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def ask(self, episode: str, role: str, text: str, **more: Any) -> httpx.Response:
        """A call of a role in an episode."""
        body = {"model": role, "messages": [{"role": "user", "content": text}], **more}
        return await self.http.post(f"/episodes/{episode}/v1/chat/completions", json=body)

    async def end(self, episode: str, **said: Any) -> httpx.Response:
        """The end of an episode."""
        return await self.http.post(f"/v1/episodes/{episode}/end", json=said)


@asynccontextmanager
async def open_gateway(
    *,
    answer: Answer = backwards,
    candidates: int = 2,
    has_tasks: bool = True,
    compare: str = "turn",
    rows: Mapping[Any, Sequence[Mapping[str, Any]]] = ROWS,
    limits: GatewayLimits = GatewayLimits(idle_s=10, wait_s=0.05, lease_s=0.05),  # noqa: B008 - it is frozen
) -> AsyncIterator[OpenGateway]:
    """A gateway for two roles."""
    options = ProgramOptions(roles=ROLES, compare=compare)  # type: ignore[arg-type]
    scenario = ListedProgramScenario(options, rows) if has_tasks else ProgramScenario(options, None)
    engine, now = ScriptedEngine(answer, (*ROLES, "other"), context=100_000), [0.0]
    queue = EpisodeQueue(
        scenario,
        {OWN: Arm(scenario)},
        engine.tokenizer,
        candidates=candidates,
        idle_s=limits.idle_s,
        now=lambda: now[0],
    )
    recorder = GatewayRecorder(queue, {"finder": 1.0, "reader": 0.7}, limits.wait_s)
    models = {role: RoleModel(chats=True, max_tokens=200, most_tokens=200) for role in ROLES}
    app = gateway_app(offer(engine, models), queue, recorder, Entrance(), limits)
    async with client(app) as http:
        yield OpenGateway(queue, app, engine, http, now)
