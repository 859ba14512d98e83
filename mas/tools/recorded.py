"""The servers of tools of one team, and the record of what came of every call: an equal call is made once.

Which call of an episode is equal to which is the caller's to say: it numbers the equal calls of an agent in the branch
of the episode that it is in. So all branches of a tree, and an episode that is played again from the same file, are
told the same.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from mas.core.errors import RunDirectoryError, ToolRefused
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.core.tool_call import ToolCall
from mas.core.tool_server import ToolServer
from mas.tools.mcp_client import McpConnection
from mas.tools.mcp_schema import described
from mas.tools.python_tool import PythonTool

KEPT = 100_000
"""The latest calls that a record keeps."""
_TABLE = """CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, key TEXT UNIQUE, episode TEXT, agent TEXT, tool TEXT, arguments TEXT, number INTEGER,
    result TEXT
)"""


class CallRecord:
    """Results by call, in a file; None: in a temporary one, for this process alone.

    Raises:
        RunDirectoryError: the file is no such record.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._base = sqlite3.connect(str(path or ""), isolation_level=None)
        try:
            self._base.execute("PRAGMA journal_mode=WAL")
            self._base.execute(_TABLE)
        except sqlite3.Error as error:
            self._base.close()
            raise RunDirectoryError(f"{path} cannot be used: {error}. Delete it: calls are then made again") from error

    def result(self, key: str) -> str | None:
        """What came of a call, None: it was not made."""
        row = self._base.execute("SELECT result FROM calls WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def add(self, key: str, episode: str, agent: str, call: ToolCall, number: int, result: str) -> None:
        """Write down what came of a call. It survives a kill of the process."""
        row = (key, episode, agent, call.name, canonical(call), number, result)
        columns = "key, episode, agent, tool, arguments, number, result"
        found = self._base.execute(f"INSERT INTO calls ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._base.execute("DELETE FROM calls WHERE id <= ?", ((found.lastrowid or 0) - KEPT,))

    def close(self) -> None:
        """Nothing is read or written any more."""
        self._base.close()


def canonical(call: ToolCall) -> str:
    """Equal for calls with equal arguments."""
    return json.dumps(dict(call.arguments), sort_keys=True, separators=(",", ":"))


class ToolConnection(Protocol):
    """A server of tools that is open. Whatever becomes of a call is a text."""

    async def start(self) -> None:
        """Begin; MasError: it cannot be used."""

    async def close(self) -> None:
        """End it."""

    async def tools(self) -> dict[str, dict[str, Any]]:
        """Its tools, as MCP describes them."""

    async def allow(self, names: Collection[str]) -> None:
        """These tools may be called; ConfigError: it does not have one of them."""

    def check(self, call: ToolCall) -> None:
        """ToolRefused: the arguments do not fit."""

    async def call(self, call: ToolCall) -> str:
        """What came of a call."""

    def clean(self, text: str) -> str:
        """A text without secrets."""


def _connection(name: str, options: ToolServer) -> ToolConnection:
    return McpConnection(name, options) if options.sandbox is None else PythonTool(name, options)


class RecordedTools:
    """Calls of the tools of a team's servers. For one event loop."""

    def __init__(self, servers: Mapping[str, ToolConnection], record: CallRecord) -> None:
        self._servers, self._record = servers, record
        self._making: dict[str, asyncio.Task[str]] = {}

    async def call(self, episode: str, agent: str, call: ToolCall, number: int) -> str:
        """The text of a call's result, or one sentence on what is wrong with the call.

        Args:
            number: which of the agent's equal calls in its branch of the episode, from 0.
        """
        server = self._servers[call.name.partition(".")[0]]
        try:
            server.check(call)
        except ToolRefused as refused:
            return f"error: {refused}"
        key = digest(episode, agent, call.name, canonical(call), number)
        known = self._record.result(key)
        if known is not None:
            return known
        if key not in self._making:
            made = self._made(key, episode, agent, call, number)
            self._making[key] = asyncio.create_task(made, name=f"call of {call.name}")
        return await asyncio.shield(self._making[key])  # whoever waits may go: what was begun is done, and recorded

    async def _made(self, key: str, episode: str, agent: str, call: ToolCall, number: int) -> str:
        try:
            text = await self._servers[call.name.partition(".")[0]].call(call)
            self._record.add(key, episode, agent, call, number, text)
            return text
        finally:
            del self._making[key]

    async def close(self) -> None:
        """Cancel the calls that are under way."""
        making = list(self._making.values())
        for task in making:
            task.cancel()
        if making:
            await asyncio.wait(making)


async def offered_tools(servers: Mapping[str, ToolServer]) -> dict[str, str]:
    """Every tool of some servers, `SERVER.TOOL` -> what it does and takes, in a line.

    Raises:
        ConfigError, MissingPackage: as `open_tools`.
    """
    found: dict[str, str] = {}
    for name, options in servers.items():
        server = _connection(name, options)
        try:
            await server.start()
            offered = await server.tools()
            found |= {server.clean(f"{name}.{tool}"): server.clean(described(about)) for tool, about in offered.items()}
        finally:
            await server.close()
    return found


@asynccontextmanager
async def open_tools(team: TeamSpec, path: Path | None = None) -> AsyncIterator[RecordedTools]:
    """Start the team's servers of tools, or connect to them.

    Args:
        path: of the record; None: it ends with the block.

    Raises:
        ConfigError: a server cannot be used, or does not have a tool that a role may call. SandboxError: no program can
            be run safely here.
        MissingPackage: the extra `mcp` is not installed. RunDirectoryError: as `CallRecord`.
    """
    async with AsyncExitStack() as stack:
        record = CallRecord(path)
        stack.callback(record.close)
        servers = {name: _connection(name, options) for name, options in team.tools.items()}
        for name, server in servers.items():
            stack.push_async_callback(server.close)
            await server.start()
            called = {tool for role in team.roles.values() for tool in role.server_tools}
            await server.allow(sorted(tool.partition(".")[2] for tool in called if tool.partition(".")[0] == name))
        tools = RecordedTools(servers, record)
        stack.push_async_callback(tools.close)
        yield tools
