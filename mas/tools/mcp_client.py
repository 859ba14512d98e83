"""A connection to one MCP server, over which tools are called; whatever becomes of a call is a text.

The server is not trusted: a call has a time limit, a result a limit of characters, and no value of an environment
variable that it was given is passed on. One that ends is started once more for the call that noticed it.
"""

import asyncio
import json
import logging
import os
import shlex
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any

from mas.core.errors import ConfigError, MissingPackage, ToolRefused
from mas.core.naming import did_you_mean
from mas.core.tool_call import ToolCall
from mas.core.tool_server import ToolServer
from mas.tools.mcp_schema import parameters_of
from mas.tools.mcp_streams import Traffic, streams
from mas.tools.toolbox import Parameters, check_arguments

_PAGES, _MOST_TOOLS = 20, 1000
_WHY = 300
"""Characters of another program's error that are repeated."""
_CLOSED = -32000
"""The code of a request that ended with its connection."""


def check_sdk(what: str) -> None:
    """Refuse what the SDK is needed for if it is not installed.

    Args:
        what: says what needs it.

    Raises:
        MissingPackage: it is not installed.
    """
    if find_spec("mcp") is None:
        raise MissingPackage(f"{what} the package mcp, which is not installed: pip install 'mas[mcp]'")


class McpConnection:
    """A server, named as in the team.

    Raises:
        MissingPackage: the extra `mcp` is not installed. ConfigError: an environment variable is not set.
    """

    def __init__(self, name: str, options: ToolServer) -> None:
        check_sdk("tools of MCP servers need")
        self.name, self._options = name, options
        variables = options.env if options.key_env is None else (*options.env, options.key_env)
        if unset := [variable for variable in variables if variable not in os.environ]:
            raise ConfigError(f"the server of tools {name!r} is to be given {unset[0]}: set this environment variable")
        self._secrets = {variable: os.environ[variable] for variable in variables}
        self._parameters: dict[str, type[Parameters]] = {}
        self._results: dict[str, type[Parameters]] = {}
        self._traffic, self._session = Traffic(), None  # type: tuple[Traffic, Any]
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._starting = asyncio.Lock()
        logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it would log whatever a server sends wrongly

    @property
    def _address(self) -> str:
        return self._options.url or shlex.join((self._options.command or "", *self._options.args))

    async def start(self) -> None:
        """Start the server, or connect to it.

        Raises:
            ConfigError: it cannot be reached, or does not answer as a server of tools in its time.
        """
        await self._connect()

    async def _connect(self) -> None:
        self._traffic, self._stop = Traffic(), asyncio.Event()
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._own(self._traffic, ready, self._stop), name=f"tools of {self.name}")
        try:
            async with asyncio.timeout(self._options.timeout_s):
                self._session = await ready
        except (ConfigError, TimeoutError) as error:
            await self.close()
            limit_s = self._options.timeout_s
            why = f"it did not answer within {limit_s:g} s" if isinstance(error, TimeoutError) else str(error)
            hint = "Run the command by hand to see what it prints" if self._options.url is None else "Check the url"
            raise ConfigError(
                f"the server of tools {self.name!r} ({self._address}) cannot be used: {self.clean(why)[:_WHY]}. {hint}"
            ) from None

    async def _own(self, traffic: Traffic, ready: "asyncio.Future[Any]", stop: asyncio.Event) -> None:
        """Hold the connection: what enters it must leave it in one task."""
        from mcp import ClientSession

        try:
            traffic.begin()
            async with (
                streams(self._options, self._secrets, traffic) as (read, write),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                for name in ("validate_tool_result", "_validate_tool_result"):  # is done here, see `_checked`
                    setattr(session, name, _unchecked)
                traffic.end()
                if not ready.done():
                    ready.set_result(session)
                await stop.wait()
        except Exception as error:  # noqa: BLE001 - of a server and of whatever the SDK raises
            if not ready.done():
                ready.set_exception(ConfigError(_why(error, traffic)))
        finally:
            traffic.is_lost = True

    async def close(self) -> None:
        """End the connection, and the program that was started."""
        owner, self._owner, self._session = self._owner, None, None
        if owner is None:
            return
        self._stop.set()
        await asyncio.wait([owner], timeout=_GRACE_S)
        if not owner.done():
            owner.cancel()
            await asyncio.wait([owner])

    async def tools(self) -> dict[str, dict[str, Any]]:
        """All tools that the server offers, by name, as it describes them.

        Raises:
            ConfigError: it does not say, or offers more than a thousand.
        """
        from mcp import types

        found: dict[str, dict[str, Any]] = {}
        page: Any = {}
        for _ in range(_PAGES):
            cursor = page.get("nextCursor")
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            try:
                answer = await self._asked(partial(_listed, params))
            except ToolRefused as refused:
                raise ConfigError(f"the server of tools {self.name!r} does not list them: {refused}") from None
            page = answer.model_dump(mode="json", by_alias=True)
            found |= {tool["name"]: tool for tool in page["tools"]}
            if page.get("nextCursor") is None and len(found) <= _MOST_TOOLS:
                return found
        raise ConfigError(f"the server of tools {self.name!r} offers more than {_MOST_TOOLS} tools: that is too many")

    async def allow(self, names: Collection[str]) -> None:
        """Read the parameters of the tools that may be called.

        Raises:
            ConfigError: it does not offer one of them, or describes it wrongly.
        """
        offered = await self.tools()
        for name in names:
            if name not in offered:
                hint = self.clean(did_you_mean(name, offered))
                raise ConfigError(f"the server of tools {self.name!r} has no tool {name!r}. {hint}")
            tool = offered[name]
            try:
                self._parameters[name] = parameters_of(tool.get("inputSchema"))
                if tool.get("outputSchema") is not None:
                    self._results[name] = parameters_of(tool["outputSchema"], is_open=True)
            except ConfigError as error:
                why = f"describes {name!r} wrongly: {self.clean(str(error))}"
                raise ConfigError(
                    f"the server of tools {self.name!r} {why}. Leave the tool out, or tell the server's author"
                ) from None

    def check(self, call: ToolCall) -> None:
        """Refuse a call that the server's schema does not allow.

        Raises:
            ToolRefused: says why.
        """
        check_arguments(call, self._parameters[call.name.partition(".")[2]])

    async def call(self, call: ToolCall) -> str:
        """Call a tool, and once more if its server ends meanwhile; the text of its result, or what went wrong."""
        name = call.name.partition(".")[2]
        try:
            result = await self._asked(lambda session: session.call_tool(name, dict(call.arguments)))
            text = self._checked(name, result.model_dump(mode="json", by_alias=True))
        except ToolRefused as refused:
            text = f"error: tool {call.name!r}: {refused}"
        text = self.clean(text)
        most = self._options.max_chars
        return text if len(text) <= most else f"{text[:most]}\n[cut off: the result has {len(text)} characters]"

    async def _asked(self, request: Callable[[Any], Any]) -> Any:
        """The answer to a request.

        Raises:
            ToolRefused: none came in time, the server refuses, or it has ended and does so again.
        """
        for is_again in (False, True):
            session, traffic = await self._live(), self._traffic
            traffic.begin()
            try:
                async with asyncio.timeout(self._options.timeout_s):
                    return await request(session)
            except TimeoutError:
                raise ToolRefused(f"no result came within {self._options.timeout_s:g} s") from None
            except Exception as error:  # noqa: BLE001 - of a server and of whatever the SDK raises
                await asyncio.sleep(0)
                is_closed = getattr(getattr(error, "error", None), "code", _CLOSED) == _CLOSED
                if not (traffic.is_lost or is_closed) or is_again:
                    raise ToolRefused(self.clean(_why(error, traffic))[:_WHY]) from None
            finally:
                traffic.end()
        raise AssertionError("unreachable")

    async def _live(self) -> Any:
        """The session; the server is started again if it has ended.

        Raises:
            ToolRefused: it cannot be.
        """
        async with self._starting:
            if self._session is None or self._traffic.is_lost:
                await self.close()
                try:
                    await self._connect()
                except ConfigError as error:
                    raise ToolRefused(str(error)) from None
            return self._session

    def _checked(self, name: str, result: Mapping[str, Any]) -> str:
        """The text of a result.

        Raises:
            ToolRefused: the server says that the call failed, or returns something else than it has declared.
        """
        parts: list[str] = [one["text"] if one["type"] == "text" else f"[{one['type']}]" for one in result["content"]]
        structured, model = result.get("structuredContent"), self._results.get(name)
        text = "\n".join(parts)
        if result.get("isError"):
            raise ToolRefused(text or "it failed, and does not say why")
        if model is not None:
            if not isinstance(structured, dict):
                raise ToolRefused("its result has no structured content, as its server says that it has")
            try:
                check_arguments(ToolCall(name, structured), model)
            except ToolRefused as refused:
                raise ToolRefused(f"its result is another than its server says: {refused}") from None
        return text if parts or structured is None else json.dumps(structured, ensure_ascii=False)

    def clean(self, text: str) -> str:
        """Without any value of the environment variables that the server was given."""
        for variable, value in self._secrets.items():
            text = text.replace(value, f"[{variable}]") if value else text
        return text


_GRACE_S = 6.0
"""How long a connection may take to end by itself: longer than a program is given."""


async def _unchecked(name: str, result: Any) -> None:
    """In place of the SDK's check of a result, which reads the whole schema."""


def _listed(params: Any, session: Any) -> Any:
    """A page of the tools that a session's server offers."""
    return session.list_tools() if params is None else session.list_tools(params=params)


def _why(error: BaseException, traffic: Traffic) -> str:
    """The first cause of an error in a few words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = " ".join(str(error).split())
    if traffic.is_lost or "Connection closed" in text:
        return text if isinstance(error, OSError) else traffic.cause
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
