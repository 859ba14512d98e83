"""Methods of a user's class as tools of its environment: read, checked, made on the instance, and told.

The type hints and docstring of a method are its tool's parameters and description. Whatever a method changes of its
instance is a part of the environment's state, as the environment plays an episode again for each copy.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, get_type_hints

from pydantic import Field, PydanticUserError, create_model

from mas.core.errors import ConfigError, ToolRefused
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.core.tool_call import ToolCall
from mas.protocols import plan_execute, solo
from mas.roles.chat import written_call
from mas.tools.toolbox import Parameters, Tool, Toolbox, read_call


class ToolMethod(NamedTuple):
    """A method. `called`: field of its parameters -> the argument's name; `shown`: what models are told of it."""

    description: str
    parameters: type[Parameters]
    called: Mapping[str, str]
    shown: str


def public_methods(kind: type, *reserved: str) -> tuple[str, ...]:
    """The names of a class's own methods that do not begin with an underscore."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return tuple(name for name, _ in found if not name.startswith("_") and name not in reserved)


class GameTools:
    """Methods of one instance as tools, and what came of the calls in its episode.

    A call may change the instance. An action is a call where its JSON begins as one, or stands behind `<tool_call>`.

    Attributes:
        told: a text for each call, and for whatever else is to be seen between them.

    Raises:
        ConfigError: a method is asynchronous, has no docstring, or a parameter without a type that JSON can hold.
    """

    def __init__(self, made: Any, names: tuple[str, ...]) -> None:
        kind: Any = type(made)
        methods = tool_methods(kind, names)
        self.told: list[str] = []
        self._shown = "\n".join(method.shown for method in methods.values())
        self._box = Toolbox(
            Tool(
                name=name,
                description=method.description,
                parameters=method.parameters,
                function=partial(_perform, getattr(made, name), method.called),
            )
            for name, method in methods.items()
        )

    def fields(self) -> dict[str, str]:
        """What views see of them: `tools`, a line each, and `history`."""
        return {"tools": self._shown, "history": "\n".join(self.told)}

    def call_of(self, action: str) -> ToolCall | None:
        """The call that an action is; None: it is none, or cannot be read."""
        try:
            return read_call(written_call(action) or "")
        except ToolRefused:
            return None

    def is_call(self, action: str) -> bool:
        """Whether an action is a call with parameters that fit its tool."""
        call = self.call_of(action)
        try:
            return call is not None and self._box.check(call) is not None
        except ToolRefused:
            return False

    def is_failed_call(self, action: str) -> bool:
        """Whether an action begins as a call and is none that a tool takes."""
        return written_call(action) is not None and not self.is_call(action)

    def perform(self, call: str) -> bool:
        """Make a call and note its result; returns whether it was one that a tool takes."""
        try:
            result, is_legal = self._box.call(call), True
        except ToolRefused as error:
            result, is_legal = f"error: {error}", False
        self.note(call, result)
        return is_legal

    def note(self, call: str, result: str) -> None:
        """A call and what its caller is told."""
        self.told.append(f"call: {call}\nresult: {result}")


@cache
def tool_methods(kind: type, names: tuple[str, ...]) -> Mapping[str, ToolMethod]:
    """Methods of a class as tools, by name; ConfigError: as `GameTools`, or there is no such method."""
    for name in names:
        if not inspect.isfunction(getattr(kind, name, None)):
            raise ConfigError(f"{kind.__name__} names the tool {name!r}, and has no such method")
    return {name: _method(getattr(kind, name)) for name in names}


def _method(function: Callable[..., Any]) -> ToolMethod:
    where, description = function.__qualname__, inspect.getdoc(function)
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{where} is asynchronous, which tools here cannot be: write it as a plain method")
    if not description:
        raise ConfigError(f"{where} has no docstring; say what it does: models choose by it")
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError) as error:
        raise ConfigError(f"{where}: its type hints cannot be read: {error}") from error
    fields: dict[str, Any] = {}
    called: dict[str, str] = {}
    for number, one in enumerate([*inspect.signature(function).parameters.values()][1:]):
        if one.kind not in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) or one.name not in hints:
            raise ConfigError(f"{where}({one}): each parameter of a tool needs a name of its own and a type hint")
        called[f"argument_{number}"] = one.name
        default = ... if one.default is one.empty else one.default
        fields[f"argument_{number}"] = (hints[one.name], Field(default, alias=one.name))
    try:
        parameters = create_model(f"{function.__name__}_arguments", __base__=Parameters, **fields)
        schema = parameters.model_json_schema()
    except PydanticUserError as error:
        raise ConfigError(f"{where}: a parameter has a type that JSON cannot hold: {str(error)[:200]}") from error
    shown = {"name": function.__name__, "description": description, "parameters": schema}
    return ToolMethod(description, parameters, called, json.dumps(shown, ensure_ascii=False))


def _perform(method: Callable[..., Any], called: Mapping[str, str], given: Parameters) -> str:
    """Whatever a tool raises is its result, as in TRL."""
    try:
        return result_text(method(**{name: getattr(given, field) for field, name in called.items()}))
    except Exception as error:  # noqa: BLE001 - a user's code
        return f"error: {error}"


def result_text(content: Any) -> str:
    """A text, or the texts of a list of parts."""
    if not isinstance(content, list) or not all(isinstance(part, Mapping) and "type" in part for part in content):
        return str(content)
    return "\n".join(str(part["text"]) if part["type"] == "text" else f"[{part['type']}]" for part in content)


def tool_teams(kind: type, max_tokens: int, shown: str | None = None) -> dict[str, TeamSpec]:
    """`team`: an adviser speaks before who acts; `solo`: one agent acts.

    Args:
        shown: the beginning of the compact prompts; None: all fields, line by line.
    """
    acts = RoleSpec(
        type="executor",
        instructions=(inspect.getdoc(kind) or "You solve a task with tools.").split("\n\n")[0],
        template=None if shown is None else f"{shown}>",
        format=(
            'Call one tool, as one line of JSON {"name": TOOL, "arguments": {NAME: VALUE}}, or write your final answer.'
        ),
        max_tokens=max_tokens,
    )
    plans = RoleSpec(
        type="planner",
        instructions="You see what your team mate sees, who calls tools and answers.",
        template=None if shown is None else f"{shown}|Advice:",
        format="What should your team mate do now, and why? Answer in a few short sentences.",
        max_tokens=256,
    )
    advised = acts.model_copy(update={"template": None if shown is None else f"{shown}|Advice: {{from.planner}}>"})
    return {"team": plan_execute(plans, advised), "solo": solo(acts)}
