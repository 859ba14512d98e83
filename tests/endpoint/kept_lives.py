"""A team that asks two people between a writer and a closer, served in several lives from one journal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from clients import offer

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.core.engine import Generation, Request
from mas.endpoint import KeptRequests, TeamModel, build_app
from mas.endpoint.client_keys import ClientLimits, Entrance
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.human import HumanDesk
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine

CHAT = "/v1/chat/completions"
ASKED = {"model": "team:judged", "messages": [{"role": "user", "content": "Up or down?"}], "seed": 7}
KEY = {"Idempotency-Key": "3f1c"}
ALONE: dict[str, Any] = {
    "name": "judged",
    "roles": {"writer": {"type": "executor"}},
    "edges": ["start -> writer", "writer -> done"],
    "output": "writer",
}
"""A team without people."""
PERSON = {"type": "executor", "voice": "human", "trainable": False, "choices": ["U", "D"]}
TEAM: dict[str, Any] = {
    "name": "judged",
    "roles": {"writer": {"type": "executor"}, "left": PERSON, "right": PERSON, "closer": {"type": "executor"}},
    "edges": [
        "start -> writer", "writer -> left", "writer -> right", "left -> closer", "right -> closer", "closer -> done",
    ],
    "output": "closer",
}  # fmt: skip


class Voices(ScriptedEngine):
    """Says who was asked with which seed. `asked`: who, in order; `on_asked` is told, too."""

    def __init__(self, on_asked: Callable[[str], None] = lambda name: None) -> None:
        super().__init__(lambda prompt, adapter, seed: f"{adapter} {seed % 1000}", ("writer", "closer"))
        self.asked: list[str] = []
        self._on_asked = on_asked

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.asked.append(request.adapter or "")
        self._on_asked(self.asked[-1])
        return await super().generate(request)


class Life(NamedTuple):
    """A process that serves a team and keeps its requests."""

    app: Any
    engine: Voices
    desk: HumanDesk
    kept: KeptRequests
    runtime: TeamRuntime


@asynccontextmanager
async def life(
    journal: Path,
    engine: Voices | None = None,
    *,
    team: dict[str, Any] = TEAM,
    run: str = "one",
    most: int = 9,
    clients: Sequence[ClientLimits] = (),
) -> AsyncIterator[Life]:
    """Serve from a journal, or go on from it."""
    engine = engine or Voices()
    spec = load_team(team)
    with Journal.open(journal) as opened:
        log, bus = ReplayLog(opened), MemoryBus()
        desk, plan = HumanDesk(log=log), compile_team(spec, build_roles(spec))
        adapters = {name: name for name in engine.adapters()}
        async with TeamRuntime(plan, engine, bus, adapters=adapters, desk=desk, log=log) as runtime:
            model = TeamModel(runtime, {name: {"task": "?"} for name in spec.roles})
            async with KeptRequests(log, [model], of={"run": run}, most=most) as kept:
                app = build_app(offer(engine, teams=[model]), desk=desk, kept=kept, entrance=Entrance(clients=clients))
                yield Life(app, engine, desk, kept, runtime)
        await bus.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not is_so():  # noqa: ASYNC110 - what it waits for has no event
            await asyncio.sleep(0.001)


async def open_questions(served: Life, number: int) -> dict[str, str]:
    """Agent -> id of its question, once so many are open."""
    await until(lambda: len(served.desk.questions()) == number)
    return {question.agent: question.id for question in served.desk.questions()}


async def answer(asking: httpx.AsyncClient, question: str, text: str) -> None:
    answered = await asking.post(f"/v1/questions/{question}", json={"text": text})
    assert answered.status_code == 200, answered.text


def said(response: httpx.Response) -> tuple[str, dict[str, int]]:
    """The action and what it cost."""
    assert response.status_code == 200, response.text
    body = response.json()
    return body["choices"][0]["message"]["content"], body["usage"]
