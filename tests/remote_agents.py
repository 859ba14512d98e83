"""A2A agents on a free port of this machine: one of the SDK's own server, and one that answers whatever a test says."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import Message, Part, Role, Task, TaskState, TaskStatus
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value
from loopback import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

CARD = "/.well-known/agent-card.json"


def card(address: str, **more: Any) -> dict[str, Any]:
    """A card as JSON of an agent that answers with text and streams."""
    return {
        "name": "critic",
        "description": "Says what is wrong.",
        "version": "1",
        "supportedInterfaces": [{"url": f"{address}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": True},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
    } | more


class Script(AgentExecutor):
    """Answers by `play`, which is given the text, what publishes events, and the queue of plain messages.

    Attributes:
        asked: every text, oldest first; cancelled: the tasks that a client has cancelled.
    """

    def __init__(self, play: Callable[[str, TaskUpdater, Any], Awaitable[None]]) -> None:
        self.play, self.asked, self.cancelled = play, list[str](), asyncio.Queue[str]()
        self.headers: list[Mapping[str, str]] = []

    async def execute(self, context: Any, event_queue: Any) -> None:
        self.asked.append(context.get_user_input())
        self.headers.append(context.call_context.state["headers"])
        await self.play(self.asked[-1], TaskUpdater(event_queue, context.task_id, context.context_id), event_queue)

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()
        self.cancelled.put_nowait(context.task_id)


async def begin(updater: TaskUpdater, queue: Any) -> None:
    """The task is there, and under way."""
    status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
    await queue.enqueue_event(Task(id=updater.task_id, context_id=updater.context_id, status=status))
    await updater.start_work()


def says(*parts: Any) -> Script:
    """Answers with one message of texts, of files (bytes) and of data (anything else)."""

    async def play(text: str, updater: TaskUpdater, queue: Any) -> None:
        await queue.enqueue_event(Message(message_id="1", role=Role.ROLE_AGENT, parts=[*map(part, parts)]))

    return Script(play)


def part(value: Any) -> Part:
    if isinstance(value, str):
        return Part(text=value)
    return Part(raw=value) if isinstance(value, bytes) else Part(data=ParseDict(value, Value()))


def works(*texts: str, end: str = "complete", said: str = "") -> Script:
    """Answers with a task whose one artifact comes in pieces, and which ends with a status."""

    async def play(text: str, updater: TaskUpdater, queue: Any) -> None:
        await begin(updater, queue)
        for number, piece in enumerate(texts):
            await updater.add_artifact([Part(text=piece)], artifact_id="a", append=number > 0)
        await getattr(updater, end)(updater.new_agent_message([Part(text=said)]) if said else None)

    return Script(play)


def hangs() -> Script:
    """Begins a task and never ends it."""

    async def play(text: str, updater: TaskUpdater, queue: Any) -> None:
        await begin(updater, queue)
        await asyncio.Event().wait()

    return Script(play)


@asynccontextmanager
async def agent(script: Script, *, version: str = "1.0", binding: str = "JSONRPC", **more: Any) -> AsyncIterator[str]:
    """The address of the SDK's server."""
    described = ParseDict(card("http://unused", **more), _card_type()())
    handler = DefaultRequestHandler(script, InMemoryTaskStore(), described)
    routes = create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
    routes += [one for one in create_rest_routes(handler) if isinstance(one, Route)]

    async def shown(request: Request) -> Response:
        address = str(request.base_url).rstrip("/")
        url = f"{address}/rpc" if binding == "JSONRPC" else address
        offered = [{"url": url, "protocolBinding": binding, "protocolVersion": version}]
        return JSONResponse(card(address, **more) | {"supportedInterfaces": offered})

    async with served(Starlette(routes=[Route(CARD, shown), *routes])) as address:
        try:
            yield address.removesuffix("/v1")
        finally:
            await handler.aclose()


def _card_type() -> Any:
    from a2a.types import AgentCard

    return AgentCard


Answer = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def hostile(answer: Answer | None = None, shown: Answer | None = None, **more: Any) -> AsyncIterator[str]:
    """The address of a server whose messages are answered with `answer`, and whose card is `shown`."""

    async def usual(request: Request) -> Response:
        return JSONResponse(card(str(request.base_url).rstrip("/"), **more))

    routes = [Route(CARD, shown or usual), Route("/rpc", answer or usual, methods=["POST"])]
    async with served(Starlette(routes=routes)) as address:
        yield address.removesuffix("/v1")


def events(*results: Mapping[str, Any]) -> Answer:
    """A stream of these."""

    async def answer(request: Request) -> Response:
        name = (await request.json())["id"]
        lines = [json.dumps({"jsonrpc": "2.0", "id": name, "result": result}) for result in results]
        return Response("".join(f"data: {line}\n\n" for line in lines), media_type="text/event-stream")

    return answer
