"""The two streams of a session with an MCP server, over a program's standard input and output or streamable HTTP.

A server is not trusted: what it may send is bounded in bytes, what it sends unasked is dropped, and what a program
prints elsewhere is discarded. Nothing is read from a program while no call is under way, so that it cannot flood.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import anyio

from mas.core.http_bounds import MAX_BYTES, bounded_response
from mas.core.tool_server import ToolServer

MAX_LINE = 4 * 2**20
"""Bytes of one message."""
_END_S = 2.0
"""How long a program may take to end once its input is closed."""


class Traffic:
    """Whether anything is expected from a server, and how much it may still send.

    Attributes:
        is_lost: the connection has ended; cause: why, where it is known.
    """

    def __init__(self) -> None:
        self.is_lost, self.cause = False, "it ended"
        self._open, self._calls, self._left = asyncio.Event(), 0, 0

    def begin(self) -> None:
        """A call is under way."""
        self._calls += 1
        self._left = MAX_BYTES
        self._open.set()

    def end(self) -> None:
        """A call is over."""
        self._calls -= 1
        if not self._calls:
            self._open.clear()

    async def line(self, reader: asyncio.StreamReader) -> bytes:
        """The next line, once a call is under way; empty where the program has ended or has sent too much."""
        await self._open.wait()
        try:
            line = await reader.readline()
        except ValueError:
            self.cause = f"it sent a message of more than {MAX_LINE} bytes"
            return b""
        self._left -= len(line)
        if self._left < 0:
            self.cause = f"it sent more than {MAX_BYTES} bytes during a call"
            return b""
        return line


@asynccontextmanager
async def streams(server: ToolServer, secrets: Mapping[str, str], traffic: Traffic) -> AsyncIterator[tuple[Any, Any]]:
    """What a session reads and writes.

    Args:
        secrets: values of the environment variables that the server's options name.

    Raises:
        OSError: the program cannot be started.
    """
    async with AsyncExitStack() as stack:
        opened = _program(server, secrets, traffic) if server.url is None else _http(server, secrets)
        source, sink = await stack.enter_async_context(opened)
        forward, read = anyio.create_memory_object_stream[Any](0)

        async def forwarding() -> None:
            """Answers only: nobody reads what a server says unasked."""
            async with forward, source:
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    async for message in source:
                        if _is_answer(message):
                            await forward.send(message)
            traffic.is_lost = True

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(forwarding)
            with read:
                yield read, sink
            tasks.cancel_scope.cancel()


def _is_answer(message: Any) -> bool:
    """Whether it is an answer; `root`: where the SDK of major version 1 has it."""
    inner = getattr(message, "message", None)
    return inner is not None and not hasattr(getattr(inner, "root", inner), "method")


@asynccontextmanager
async def _program(server: ToolServer, secrets: Mapping[str, str], traffic: Traffic) -> AsyncIterator[tuple[Any, Any]]:
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage

    assert server.command is not None
    process = await asyncio.create_subprocess_exec(
        server.command,
        *server.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={**get_default_environment(), **secrets},
        limit=MAX_LINE,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    stdin, stdout, read_message = process.stdin, process.stdout, _reader()
    incoming, source = anyio.create_memory_object_stream[Any](0)
    sink, outgoing = anyio.create_memory_object_stream[Any](0)

    async def reading() -> None:
        async with incoming:
            while line := await traffic.line(stdout):
                with suppress(ValueError):  # no message: a program may print to its output by mistake
                    await incoming.send(SessionMessage(read_message(line)))

    async def writing() -> None:
        with suppress(OSError):
            async with outgoing:
                async for sent in outgoing:
                    stdin.write(sent.message.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n")
                    await stdin.drain()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reading)
            tasks.start_soon(writing)
            with source, sink:
                yield source, sink
            tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _ended(process, stdin)


async def _ended(process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter) -> None:
    """Close the program's input, and after two seconds kill it with all that it has started."""
    stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    transport = process._transport  # type: ignore[attr-defined] # asyncio has no public way to drop an unread pipe
    transport.get_pipe_transport(1).close()
    await process.wait()
    transport.close()  # only now: before, it would take the exit status from the thread that waits for it


def _reader() -> Any:
    """Reads a line as a message, by the SDK of either major version."""
    import mcp.types as types

    adapter = getattr(types, "jsonrpc_message_adapter", None)
    return types.JSONRPCMessage.model_validate_json if adapter is None else adapter.validate_json  # type: ignore[attr-defined, unused-ignore]


@asynccontextmanager
async def _http(server: ToolServer, secrets: Mapping[str, str]) -> AsyncIterator[tuple[Any, Any]]:
    import mcp.client.streamable_http as http
    from mcp.shared._httpx_utils import create_mcp_http_client

    headers = {"Accept-Encoding": "identity"}
    for value in secrets.values():
        headers[server.header] = f"Bearer {value}" if server.header == "Authorization" else value

    def client(*_: Any, **__: Any) -> Any:
        made = create_mcp_http_client(headers=headers)
        made.follow_redirects = False  # newer SDKs follow those of the same origin by themselves
        made.event_hooks = {"response": [bounded_response]}
        return made

    if hasattr(http, "streamable_http_client"):
        async with client() as made, http.streamable_http_client(server.url or "", http_client=made) as opened:
            yield opened[0], opened[1]
    else:  # before 1.24
        old: Any = http
        async with old.streamablehttp_client(server.url or "", httpx_client_factory=client) as opened:
            yield opened[0], opened[1]
