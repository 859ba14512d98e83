"""What an MCP server says of its tools, as parameters that a toolbox checks.

The first level of a schema is read: names, which of them must be there, and their types. What stands deeper is left to
the server, so that no schema can make reading it slow, load anything, or run a regular expression.
"""

import json
from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import Any, Literal, TypeGuard

from pydantic import ConfigDict, Field, create_model

from mas.core.errors import ConfigError
from mas.tools.toolbox import Parameters

_TYPES: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list[Any],
    "object": dict[str, Any],
    "null": type(None),
}
_MOST, _LONGEST, _VALUES = 100, 100, 1000
"""Parameters of a tool, characters of a name, and values of one of them that are listed."""
_SHOWN = 300
_ABOUT = 1000


class OpenParameters(Parameters):
    """Base of the parameters of a tool that takes further ones."""

    model_config = ConfigDict(extra="allow")


def parameters_of(schema: object, *, is_open: bool = False) -> type[Parameters]:
    """The model of a JSON Schema of an object.

    Args:
        is_open: names that it does not list are allowed where it does not say; else only where it says so.

    Raises:
        ConfigError: it is none, or too large.
    """
    properties = schema.get("properties", {}) if isinstance(schema, Mapping) else None
    required = schema.get("required", []) if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
        raise ConfigError("it is no schema of an object")
    if not isinstance(properties, Mapping) or not _is_names(required) or len(properties) > _MOST:
        raise ConfigError(f"its properties are no mapping of at most {_MOST}, or its required names no list of texts")
    if odd := [name for name in properties if not 0 < len(name) <= _LONGEST or not name.isprintable()]:
        raise ConfigError(f"it has a parameter named {odd[0][:_LONGEST]!r}")
    if unknown := [name for name in required if name not in properties]:
        raise ConfigError(f"it requires {str(unknown[0])[:_LONGEST]!r}, which is none of its properties")
    fields: dict[str, Any] = {}
    for number, (name, value) in enumerate(properties.items()):
        kind = _type_of(value)
        needed = Field(alias=name) if name in required else Field(default=None, alias=name)
        fields[f"p{number}"] = (kind, needed)
    extra = schema.get("additionalProperties", is_open or "properties" not in schema)
    base = Parameters if extra is False else OpenParameters
    return create_model("Arguments", __base__=base, **fields)


def _is_names(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _type_of(schema: object) -> Any:
    """The type of a value; any, where its schema says more than a type or a few values."""
    if not isinstance(schema, Mapping):
        return Any
    values = schema.get("enum")
    if isinstance(values, list) and values and len(values) <= _VALUES and all(isinstance(one, str) for one in values):
        return Literal[tuple(values)]
    named = schema.get("type")
    names: list[Any] = named if isinstance(named, list) else [named]
    if not names or any(not isinstance(name, str) or name not in _TYPES for name in names):
        return Any
    return reduce(or_, (_TYPES[name] for name in names))


def described(tool: Mapping[str, Any]) -> str:
    """A tool in one line, for a team's file: what it does, and its parameters."""
    about = " ".join(str(tool.get("description") or tool.get("title") or "").split())[:_ABOUT]
    schema = tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    given = schema.get("required") if isinstance(schema, Mapping) else None
    required = given if _is_names(given) else []
    lines = []
    for name, value in properties.items() if isinstance(properties, Mapping) else ():
        kind: Any = value.get("enum") or value.get("type") or "any" if isinstance(value, Mapping) else "any"
        shown = kind if isinstance(kind, str) else json.dumps(kind, ensure_ascii=False)[:_SHOWN]
        lines.append(f"{name} ({shown}{'' if name in required else ', optional'})")
    arguments = f"Arguments: {', '.join(lines)}." if lines else "No arguments."
    return f"{about} {arguments}".strip()
