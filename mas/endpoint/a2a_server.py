"""A trained team as an agent of the Agent2Agent protocol: its card, and tasks of one message each.

Pages of the endpoint (`mas serve --a2a`), behind its checks of key, host and web page; the card needs no key. What
members say to each other stays between them: a task has the team's action alone.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from a2a.helpers import new_task
from a2a.server.agent_execution import AgentExecutor, RequestContext, RequestContextBuilder, SimpleRequestContextBuilder
from a2a.server.agent_execution.active_task import TERMINAL_TASK_STATES
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.request_handlers.response_helpers import agent_card_to_dict
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder, StarletteUser
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    Message,
    Part,
    SecurityScheme,
    SendMessageRequest,
    Task,
    TaskState,
)
from a2a.utils import errors
from google.protobuf.json_format import MessageToDict
from starlette.authentication import SimpleUser
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import Receive, Scope, Send

from mas.core.remote_agent import WELL_KNOWN
from mas.core.version import VERSION
from mas.endpoint.client_keys import client_of
from mas.endpoint.errors import Refused
from mas.endpoint.limits import ConnectionGate, PromptReader
from mas.endpoint.models import Served
from mas.endpoint.teams import TeamModel

PREFIX = "/a2a"
RPC = "/rpc"
KEPT, KEPT_BYTES = 1000, 64 * 2**20
"""Tasks that are over which can still be asked for: the latest, as long as they have so many bytes together."""
_TEXT, _JSON = "text/plain", "application/json"
_READ = ("a2a-version", "a2a-extensions")
"""Headers that the SDK reads; it is given no other ones, such as that of the key."""
_FAULT = 500
"""The lowest HTTP status of errors that are the server's."""


def agent_card(team: TeamModel, skill: str, about: str, address: str, *, has_key: bool) -> AgentCard:
    """The card of a team.

    Args:
        skill: the name of its scenario; about: what that is.
        address: of the server, such as `http://127.0.0.1:8000`.
        has_key: whether clients must send one.
    """
    described = f"Gives the action of the team {team.name!r} in a situation: an object of fields, or a text."
    card = AgentCard(
        name=team.name,
        description=described,
        version=VERSION,
        default_input_modes=[_TEXT, _JSON],
        default_output_modes=[_TEXT],
        supported_interfaces=[
            AgentInterface(url=f"{address}{PREFIX}{path}", protocol_binding=binding, protocol_version=version)
            for version in ("1.0", "0.3")
            for binding, path in (("JSONRPC", RPC), ("HTTP+JSON", ""))
        ],
        skills=[AgentSkill(id=skill, name=skill, description=about, tags=[skill, "team"], examples=[team.example])],
    )
    card.capabilities.streaming = True
    if has_key:
        scheme = HTTPAuthSecurityScheme(scheme="bearer", description="the key of the server")
        card.security_schemes["key"].CopyFrom(SecurityScheme(http_auth_security_scheme=scheme))
        card.security_requirements.add().schemes["key"].list.extend(())
    return card


@dataclass(frozen=True, slots=True)
class TeamTasks(AgentExecutor, RequestContextBuilder):
    """Plays the tasks of one team.

    Attributes:
        gate: how many tasks run at the same time, and how many may wait.
        prompts: checks how long the texts are.
        max_seconds: that a task may take; None: no limit.
    """

    team: TeamModel
    gate: ConnectionGate
    prompts: PromptReader
    max_seconds: float | None

    async def build(
        self,
        context: ServerCallContext,
        params: SendMessageRequest | None = None,
        task_id: str | None = None,
        context_id: str | None = None,
        task: Task | None = None,
    ) -> RequestContext:
        """The context of a request, once its message has been checked.

        Raises:
            A2AError: the message is none that the team can read, is for a task that has one, or asks for what is not
                offered.
        """
        assert params is not None
        if task_id is not None:
            raise errors.UnsupportedOperationError(
                "a task takes one message here: send the next one without taskId, with the same contextId"
            )
        modes = params.configuration.accepted_output_modes
        if modes and not {_TEXT, "text/*", "*/*"} & {*modes}:
            raise errors.ContentTypeNotSupportedError(f"the team answers with {_TEXT} alone")
        if params.configuration.HasField("task_push_notification_config"):
            raise errors.PushNotificationNotSupportedError("there are no push notifications here")
        try:
            for text in self.team.texts(message_text(params.message)):
                await self.prompts.check(text)
        except Refused as refused:
            raise errors.InvalidParamsError(str(refused)) from refused
        return await SimpleRequestContextBuilder().build(context, params, task_id, context_id, task)

    async def execute(self, context: Any, event_queue: EventQueue) -> None:
        """Play the team turn of one task, with the likeliest answer of each member."""
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)

        def said(text: str) -> Message:
            return updater.new_agent_message([Part(text=text)])

        submitted = TaskState.TASK_STATE_SUBMITTED
        begun = new_task(context.task_id, context.context_id, submitted, history=[context.message])
        await event_queue.enqueue_event(begun)
        client = context.call_context.state["client"]
        try:
            with self.gate.entered():
                async with self.gate.places(1), asyncio.timeout(self.max_seconds):
                    await updater.start_work()
                    text, cost = message_text(context.message), client.spend
                    turn = await self.team.turn(text, 0, 0.0, on_cost=lambda asked, made: cost(asked + made))
        except TimeoutError:
            await updater.failed(said(f"a task may take {self.max_seconds:g} s here"))
        except Refused as refused:
            end = updater.failed if refused.status >= _FAULT else updater.reject
            await end(said(str(refused)))
        else:
            await updater.add_artifact([Part(text=turn.action)], name="action")
            await updater.complete()

    async def cancel(self, context: Any, event_queue: EventQueue) -> None:
        """Say that a task is cancelled; the SDK then cancels what plays it."""
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def message_text(message: Message) -> str:
    """What a message tells the team: its texts, line by line, or its one object of fields as JSON.

    Raises:
        A2AError: there is neither, or something else.
    """
    kinds = {part.WhichOneof("content") for part in message.parts}
    if kinds - {"text", "data"}:
        raise errors.ContentTypeNotSupportedError(
            "a message to the team has texts, or one object of fields as data; no files"
        )
    if kinds == {"text"}:
        return "\n".join(part.text for part in message.parts)
    if kinds != {"data"} or len(message.parts) != 1:
        raise errors.InvalidParamsError("a message to the team has parts with text, or one part with data")
    try:
        return json.dumps(MessageToDict(message.parts[0].data), ensure_ascii=False)
    except ValueError as error:  # of a number that JSON does not have
        raise errors.InvalidParamsError(f"the data are not JSON: {error}") from None


class KeptTasks(InMemoryTaskStore):
    """Forgets the oldest of those tasks that are over."""

    def __init__(self) -> None:
        super().__init__()
        self._over: dict[str, tuple[int, ServerCallContext]] = {}
        self._bytes = 0

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Keep a task as it is now."""
        await super().save(task, context)
        if task.status.state not in TERMINAL_TASK_STATES:
            return
        self._forget(task.id)
        self._over[task.id] = task.ByteSize(), context
        self._bytes += task.ByteSize()
        while len(self._over) > KEPT or self._bytes > KEPT_BYTES:
            oldest, (_, owner) = next(iter(self._over.items()))
            await self.delete(oldest, owner)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        self._forget(task_id)
        await super().delete(task_id, context)

    def _forget(self, task_id: str) -> None:
        self._bytes -= self._over.pop(task_id, (0, None))[0]


class CallerContexts(ServerCallContextBuilder):
    """What the SDK is told of a request: who sent it, so that clients see their own tasks alone."""

    def build(self, request: Request) -> ServerCallContext:
        client = client_of(request.scope)
        headers = {name: request.headers[name] for name in _READ if name in request.headers}
        return ServerCallContext(
            user=StarletteUser(SimpleUser(client.name)), state={"headers": headers, "client": client}
        )


@asynccontextmanager
async def a2a_routes(
    served: Served, gate: ConnectionGate, max_seconds: float | None, skill: str, about: str, *, has_key: bool
) -> AsyncIterator[tuple[Route, Mount]]:
    """The routes of the card and of the pages for the first team, which work while the block runs.

    Args:
        skill: the name of the team's scenario; about: what that is.
    """
    logging.getLogger("a2a").setLevel(logging.CRITICAL)  # it would log whatever a client sends wrongly
    prompts, team, contexts = PromptReader(served), served.teams[0], CallerContexts()
    tasks = TeamTasks(team, gate, prompts, max_seconds)
    card = agent_card(team, skill, about, "", has_key=has_key)
    handler = DefaultRequestHandler(tasks, KeptTasks(), card, request_context_builder=tasks)

    async def shown(request: Request) -> Response:
        address = f"{request.base_url.scheme}://{request.base_url.netloc}"  # the name that the client knows it by
        return JSONResponse(agent_card_to_dict(agent_card(team, skill, about, address, has_key=has_key)))

    pages = [
        *create_jsonrpc_routes(handler, RPC, contexts, enable_v0_3_compat=True),
        *create_rest_routes(handler, contexts, enable_v0_3_compat=True),
    ]
    router = Router([page for page in pages if isinstance(page, Route)])  # without those of tenants

    async def bounded(scope: Scope, receive: Receive, send: Send) -> None:
        """The pages, for bodies of a known and bounded length."""
        headers: Mapping[str, str] = Request(scope).headers
        length = headers.get("content-length", "0")
        if "transfer-encoding" in headers or not length.isdecimal() or int(length) > prompts.max_body:
            raise Refused(413, f"the body has more than {prompts.max_body} bytes, or does not say how many")
        client_of(scope).enter()
        await router(scope, receive, send)

    try:
        yield Route(WELL_KNOWN, shown), Mount(PREFIX, bounded)
    finally:
        await handler.aclose()
