"""Tools and calls of them: a call given as text is read, checked and done, or refused with one clear sentence.

A tool is a name, typed parameters, a description for models, and a pure function. `Shorthand` reads calls of a few
characters, for models too small for JSON: `+34` is `add(a=3, b=4)`.

Leaves out on purpose: asynchronous tools, and tools that change anything: an environment that is cloned must not share
their effects.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, ValidationError

from mas.core.errors import ConfigError, ToolRefused
from mas.core.naming import did_you_mean
from mas.core.tool_call import ToolCall

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Parameters(BaseModel):
    """Base of every tool's parameters: frozen, and nothing that is not declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NoParameters(Parameters):
    """Of a tool that takes none."""


P = TypeVar("P", bound=Parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool(Generic[P]):
    """What an agent may call.

    Attributes:
        name: letters, digits, `_` and `-`, 64 at most, as function calling has it.
        description: what it does, for the model that calls it.
        parameters: the pydantic model that arguments must fit; types are not converted.
        function: equal parameters give equal text, and nothing else changes. What it cannot do it says by a
            `ValueError`, `ArithmeticError` or `LookupError`, whose text the caller reads.

    Raises:
        ConfigError: a name that function calling does not allow, or no description.
    """

    name: str
    description: str
    parameters: type[P]
    function: Callable[[P], str]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigError(f"a tool cannot be named {self.name!r}: use 1 to 64 letters, digits, '_' and '-'")
        if not self.description.strip():
            raise ConfigError(f"tool {self.name!r} has no description; say what it does: models choose by it")

    def schema(self) -> dict[str, Any]:
        """The tool as the JSON object that models with function calling are given."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters.model_json_schema(),
        }
        return {"type": "function", "function": function}


MAX_CALL = 10_000
"""The longest text of a call, in characters."""
_SHOWN = 60
_MOST = 4


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
        parameters: Parameters = check_arguments(call, tool.parameters)
        return parameters


def check_arguments(call: ToolCall, parameters: type[P]) -> P:
    """The parameters of a call, typed; types are not converted.

    Raises:
        ToolRefused: a parameter is missing, wrong or superfluous.
    """
    try:
        return parameters.model_validate_json(msgspec.json.encode(dict(call.arguments)), strict=True)
    except (ValidationError, UnicodeError) as error:
        raise ToolRefused(f"tool {call.name!r}: {_problems(error, parameters)}") from error


def _problems(error: ValidationError | UnicodeError, parameters: type[Parameters]) -> str:
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
    fields = parameters.model_fields
    known = ", ".join(repr(field.alias or name) for name, field in fields.items()) or "none"
    return f"{'; '.join(found)}. Parameters: {known}"


def _short(value: object) -> str:
    """A value as the text of an error shows it."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"


@dataclass(frozen=True, slots=True)
class Shorthand:
    """How calls are abbreviated.

    Attributes:
        tools: a character -> the tool it stands for and its parameters, one character each, in order. A digit is read
            as a number, everything else as text.
    """

    tools: Mapping[str, tuple[str, tuple[str, ...]]]

    def expand(self, text: str) -> ToolCall:
        """The call that a text stands for.

        Raises:
            ToolRefused: its first character stands for no tool, or it has too few or too many characters.
        """
        name, parameters = self.tools.get(text[:1], ("", ()))
        if not name:
            raise ToolRefused(f"{text[:1]!r} stands for no tool. {did_you_mean(text[:1], self.tools)}")
        if len(text) != 1 + len(parameters):
            raise ToolRefused(f"a call of {name!r} has {1 + len(parameters)} characters, not {len(text)}")
        return ToolCall(name, dict(zip(parameters, map(_value, text[1:]), strict=True)))

    def shorten(self, call: ToolCall) -> str:
        """The text that stands for a call whose arguments have one character each.

        Raises:
            ToolRefused: nothing stands for the tool, or the arguments are others.
        """
        for sign, (name, parameters) in self.tools.items():
            values = [str(call.arguments.get(parameter, "")) for parameter in parameters]
            if name == call.name and set(parameters) == set(call.arguments) and all(len(v) == 1 for v in values):
                return sign + "".join(values)
        raise ToolRefused(f"no character stands for this call: {call.text()[:60]}")


def _value(character: str) -> int | str:
    return int(character) if character in "0123456789" else character
