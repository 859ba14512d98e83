"""One tool: a name, typed parameters, a description for models, and a pure function."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

from mas.core.errors import ConfigError

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
