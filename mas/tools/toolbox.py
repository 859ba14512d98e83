"""Tools together: a call given as text is read, checked and done, or refused with one clear sentence.

Leaves out on purpose: asynchronous tools, and tools that change anything: an environment that is cloned must not share
their effects.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from pydantic import ValidationError

from mas.core.errors import ConfigError, ToolRefused
from mas.core.naming import did_you_mean
from mas.tools.tool import Parameters, Tool

MAX_CALL = 10_000
"""The longest text of a call, in characters."""
_SHOWN = 60
_MOST = 4


class ToolCall(msgspec.Struct, frozen=True):
    """The name of a tool and its arguments, not checked yet."""

    name: str
    arguments: Mapping[str, Any]

    def text(self) -> str:
        """The call as JSON, as `read_call` reads it."""
        return msgspec.json.encode({"name": self.name, "arguments": dict(self.arguments)}).decode()


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]


def read_call(text: str) -> ToolCall:
    """A call from `{"name": "add", "arguments": {"a": 3, "b": 4}}`.

    Raises:
        ToolRefused: not JSON, not such an object, or longer than `MAX_CALL` characters.
    """
    if len(text) > MAX_CALL:
        raise ToolRefused(f"the call has {len(text)} characters, at most {MAX_CALL} are read")
    try:
        written = msgspec.json.decode(text, type=_Written)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        why = f"this is no tool call: {_short(text)} ({str(error)[:200]})"
        raise ToolRefused(f'{why}. Write {{"name": TOOL, "arguments": {{NAME: VALUE}}}}') from error
    return ToolCall(written.name, written.arguments)


class Toolbox:
    """Tools by name.

    Raises:
        ConfigError: two tools of one name.
    """

    def __init__(self, tools: Iterable[Tool[Any]]) -> None:
        self._tools: dict[str, Tool[Any]] = {}
        for tool in tools:
            if tool.name in self._tools:
                raise ConfigError(f"two tools are named {tool.name!r}; rename one")
            self._tools[tool.name] = tool

    @property
    def names(self) -> tuple[str, ...]:
        """In the order given."""
        return tuple(self._tools)

    def schemas(self) -> list[dict[str, Any]]:
        """All tools in the usual form of function calling."""
        return [tool.schema() for tool in self._tools.values()]

    def call(self, text: str) -> str:
        """Read, check and do a call.

        Raises:
            ToolRefused: see `read_call` and `perform`.
        """
        return self.perform(read_call(text))

    def perform(self, call: ToolCall) -> str:
        """Check and do a call.

        Raises:
            ToolRefused: no such tool, a parameter that is missing, wrong or superfluous, or the tool cannot do it.
        """
        parameters = self.check(call)
        try:
            return self._tools[call.name].function(parameters)
        except (ValueError, ArithmeticError, LookupError) as error:
            raise ToolRefused(f"tool {call.name!r} failed: {error}") from error

    def check(self, call: ToolCall) -> Parameters:
        """The parameters of a call, typed.

        Raises:
            ToolRefused: no such tool, or a parameter that is missing, wrong or superfluous.
        """
        tool = self._tools.get(call.name)
        if tool is None:
            raise ToolRefused(f"no tool {_short(call.name)}. {did_you_mean(call.name[:_SHOWN], self._tools)}")
        try:
            parameters: Parameters = tool.parameters.model_validate_json(
                msgspec.json.encode(dict(call.arguments)), strict=True
            )
        except (ValidationError, UnicodeError) as error:
            raise ToolRefused(f"tool {call.name!r}: {_problems(error, tool)}") from error
        return parameters


def _problems(error: ValidationError | UnicodeError, tool: Tool[Any]) -> str:
    """The first wrong parameters, and which there are."""
    if isinstance(error, UnicodeError):
        return f"an argument is no text: {error}"
    found = []
    for problem in error.errors(include_url=False, include_context=False):
        name = _short(".".join(str(part) for part in problem["loc"]) or "arguments")
        if problem["type"] == "missing":
            found.append(f"parameter {name} is missing")
        elif problem["type"] == "extra_forbidden":
            found.append(f"there is no parameter {name}")
        else:
            found.append(f"parameter {name} is {_short(problem['input'])}: {problem['msg']}")
    if len(found) > _MOST:
        found[_MOST:] = [f"{len(found) - _MOST} more are wrong"]
    known = ", ".join(repr(name) for name in tool.parameters.model_fields) or "none"
    return f"{'; '.join(found)}. Parameters: {known}"


def _short(value: object) -> str:
    """A value as the text of an error shows it."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
