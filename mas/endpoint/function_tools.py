"""Functions that a client can call for a model, as they come over the wire: tools, calls, and which must be called."""

import json
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from mas.endpoint.wire_base import Wire, read_json

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class FunctionSpec(Wire):
    """A function.

    Attributes:
        parameters: JSON Schema of its arguments, which are an object.
        strict: taken and not used: calls that must be made keep to the schema, others are as the model writes them.
    """

    name: FunctionName
    description: Annotated[str, Field(max_length=65_536)] = ""
    parameters: dict[str, Any] = Field(default_factory=dict)
    strict: bool | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """All that a prompt shows of it."""
        return self.name, self.description, json.dumps(self.parameters)


class FunctionTool(Wire):
    """A function as one of the tools."""

    type: Literal["function"]
    function: FunctionSpec


class NamedFunction(Wire):
    """A function's name."""

    name: FunctionName


class FunctionChoice(Wire):
    """The one function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class CalledFunction(Wire):
    """A function and its arguments, as the text of a JSON object."""

    name: FunctionName
    arguments: str = "{}"

    @field_validator("arguments")
    @classmethod
    def _object(cls, value: str) -> str:
        try:
            is_object = isinstance(read_json(value or "{}"), dict)
        except ValueError:
            is_object = False
        if not is_object:
            raise ValueError("the text of a JSON object was expected")
        return value or "{}"


class FunctionCall(Wire):
    """A call that an assistant's message made."""

    id: Annotated[str, Field(max_length=256)]
    type: Literal["function"] = "function"
    function: CalledFunction
