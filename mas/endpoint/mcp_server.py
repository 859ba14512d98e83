"""A trained team as a tool of MCP clients: `ask_team` takes a situation and gives the team's action.

Over standard input and output (`mas mcp`), or as one more page of the endpoint (`mas serve --mcp`), behind its checks
of key, host and web page.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TextIO

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from mas.core.version import VERSION
from mas.endpoint.client_keys import client_of
from mas.endpoint.errors import Refused
from mas.endpoint.limits import ConnectionGate, Disconnected, PromptReader, within
from mas.endpoint.models import Served
from mas.endpoint.request_lifecycle import read_body
from mas.endpoint.teams import TeamModel

TOOL = "ask_team"
PATH = "/mcp"


@dataclass(frozen=True, slots=True)
class TeamTool:
    """The tool of one team.

    Attributes:
        gate: how many calls run at the same time.
        prompts: checks how long the texts are; None: nothing checks it.
        max_seconds: that a call may take; None: no limit.
    """

    team: TeamModel
    gate: ConnectionGate
    prompts: PromptReader | None = None
    max_seconds: float | None = None

    def description(self) -> types.Tool:
        about = f"The action of the team {self.team.name!r} in a situation: an object of fields, or a text."
        situation = {"description": f"For example {self.team.example}", "type": ["object", "string"]}
        schema = {"type": "object", "properties": {"situation": situation}, "required": ["situation"]}
        return types.Tool.model_validate({"name": TOOL, "description": about, "inputSchema": schema})

    async def answer(self, name: str, arguments: dict[str, Any]) -> str:
        """The team's action, which the likeliest answers of its members make.

        Raises:
            Refused: no such tool, no situation that the team can read or a longer one, too many calls, too little time,
                or the turn failed.
        """
        situation = arguments.get("situation")
        if name != TOOL or not isinstance(situation, str | dict) or len(arguments) != 1:
            raise Refused(400, f"call {TOOL} with one argument, situation: an object of fields, or a text")
        message = situation if isinstance(situation, str) else json.dumps(situation, ensure_ascii=False)
        with self.gate.entered():
            async with self.gate.places(1), within(self.max_seconds):
                if self.prompts is not None:
                    for text in self.team.texts(message):
                        await self.prompts.check(text)
                return (await self.team.turn(message, 0, 0.0)).action

    def server(self) -> Any:
        """A server of the SDK, of either major version."""
        listed = self.description()
        if not hasattr(Server, "call_tool"):

            async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
                return types.ListToolsResult(tools=[listed])

            async def call(context: Any, parameters: Any) -> types.CallToolResult:
                try:
                    text, is_error = await self.answer(parameters.name, parameters.arguments or {}), False
                except Refused as refused:
                    text, is_error = str(refused), True
                content = [{"type": "text", "text": text}]
                return types.CallToolResult.model_validate({"content": content, "isError": is_error})

            return Server("mas", version=VERSION, on_list_tools=list_tools, on_call_tool=call)
        server: Any = Server("mas", version=VERSION)

        async def tools() -> list[types.Tool]:
            return [listed]

        async def content(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
            return [types.TextContent(type="text", text=await self.answer(name, arguments))]

        server.list_tools()(tools)
        server.call_tool(validate_input=False)(content)  # what `answer` raises is an error result
        return server


class McpPage:
    """An ASGI application: the page of a server over streamable HTTP, of which each request stands alone and ends when
    its client leaves.

    Args:
        max_body: of a request, in bytes.
    """

    def __init__(self, server: Any, gate: ConnectionGate, max_body: int) -> None:
        self.manager = StreamableHTTPSessionManager(app=server, json_response=True, stateless=True)
        self._gate, self._max_body = gate, max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        length = request.headers.get("content-length", "")
        if not length.isdecimal() or int(length) > self._max_body:
            raise Refused(413, f"the body has more than {self._max_body} bytes, or does not say how many")
        client_of(scope).enter()
        with suppress(Disconnected, ClientDisconnect):
            body = await read_body(request, self._max_body)
            parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

            async def read() -> Message:
                """The body; then nothing comes, as the gate listens whether the client leaves."""
                return parts.pop() if parts else await asyncio.Future()

            async with self._gate.connected(receive):
                await self.manager.handle_request(scope, read, send)


@asynccontextmanager
async def mcp_route(served: Served, gate: ConnectionGate, max_seconds: float | None) -> AsyncIterator[Route]:
    """The route of the page for the first team, which works while the block runs."""
    prompts = PromptReader(served)
    page = McpPage(TeamTool(served.teams[0], gate, prompts, max_seconds).server(), gate, prompts.max_body)
    async with page.manager.run():
        yield Route(PATH, page, methods=["POST"])


def claim_output() -> TextIO:
    """The process's standard output, for the protocol alone: what is printed from now on goes to standard error."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return output


async def serve_stdio(team: TeamModel, output: TextIO) -> None:
    """Answer the client on standard input until it closes it.

    Args:
        output: of `claim_output`.
    """
    server = TeamTool(team, ConnectionGate(running=16, waiting=1024)).server()
    async with stdio_server(stdout=anyio.wrap_file(output)) as (read, write):
        await server.run(read, write, server.create_initialization_options())
