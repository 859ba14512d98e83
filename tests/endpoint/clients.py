"""What the tests of the endpoint share: something to serve, and clients that ask it."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.engine import Engine, Generation, Request
from mas.endpoint import RoleModel, Served, TeamModel
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

HELLO = {"model": "a", "messages": [{"role": "user", "content": "hello"}]}


def echo(has_chat: bool = True) -> ScriptedEngine:
    """Says who was asked with which seed, and the prompt backwards, with characters of several bytes."""

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        return f"{adapter or 'base'}{seed % 10} «{prompt[::-1]}» ✓"

    return ScriptedEngine(script, ("a", "b"), has_chat=has_chat)


def offer(engine: Engine, roles: Mapping[str, RoleModel] | None = None, teams: Sequence[TeamModel] = ()) -> Served:
    """The engine under the base name `org/base:1`."""
    return Served(engine=engine, base="org/base:1", context=4096, roles=roles or {}, teams=teams, created=1)


def client(app: Starlette, **headers: str) -> httpx.AsyncClient:
    """Asks an application without a network."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://mas", headers=headers)


def pieces(response: httpx.Response) -> list[dict[str, Any]]:
    """The events of a streamed answer, which must end as it should."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    *events, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def problem(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error in an answer, which must have OpenAI's form."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"]
    return error


class Stuck(ScriptedEngine):
    """Answers nobody and streams one character, until it is released; notes who is cancelled."""

    def __init__(self) -> None:
        super().__init__(lambda *_: "x" * 5, ("a",))
        self.asked = asyncio.Semaphore(0)
        self.released = asyncio.Event()
        self.cancelled = asyncio.Semaphore(0)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.asked.release()
        await self._wait()
        return await super().generate(request)

    async def stream(self, request: Request) -> AsyncIterator[Generation]:
        ref = self.adapters().get(request.adapter or "")
        yield Generation(token_ids=(ord("x") + 1,), logprobs=(0.0,), finish="", adapter=ref)
        self.asked.release()
        await self._wait()
        yield Generation(token_ids=(0,), logprobs=(0.0,), finish="stop", adapter=ref)

    async def _wait(self) -> None:
        try:
            await self.released.wait()
        except BaseException:
            self.cancelled.release()
            raise


@asynccontextmanager
async def playing(
    engine: Engine, team: Mapping[str, Any] | str = "team", *, scenario: str = "plan_path", chats: bool = False
) -> AsyncIterator[TeamModel]:
    """A scenario's team, or one written down, ready to be served."""
    world = build_scenario(ScenarioOptions(name=scenario))
    spec = world.teams[team] if isinstance(team, str) else load_team(team)
    bus = MemoryBus()
    adapters = {name: name for name in spec.roles if name in engine.adapters()}
    async with TeamRuntime(
        compile_team(spec, build_roles(spec)), engine, bus, adapters=adapters, chats=chats
    ) as runtime:
        yield TeamModel.of(runtime, world, chats=chats)
    await bus.close()
