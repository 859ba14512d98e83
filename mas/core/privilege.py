"""What a role may do with one of its tools, as data: how often it may call it, with which arguments, and what the role
is answered instead (Progent, arXiv 2504.11703: deterministic rules on tool calls, with a fallback).

Leaves out on purpose: which tools a role may call at all, which its `tools` say.
"""

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from mas.core.options import Options

_SHOWN = 60
"""Characters of an argument that a denial repeats."""


class Privilege(Options):
    """The rule for one tool of a role.

    Attributes:
        most: calls that an agent may make in one episode, in the branch that it is in; None: any number.
        arguments: name -> regular expression that the argument must match whole, and without which a call is denied;
            what is no text is matched as JSON. Arguments that are not named here may be anything.
        instead: what the caller is answered in place of a result when a call is denied; None: a sentence that says why.
    """

    most: Annotated[int, Field(ge=0)] | None = None
    arguments: dict[str, str] = Field(default_factory=dict)
    instead: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _rules(self) -> Self:
        for name, pattern in self.arguments.items():
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"arguments.{name}: {pattern!r} is not a regular expression: {error}") from error
        if self.most is None and not self.arguments:
            raise ValueError("it denies nothing: give most or arguments, or leave it out")
        return self

    def problem(self, arguments: Mapping[str, Any]) -> str | None:
        """What is wrong with the arguments of a call; None: nothing."""
        for name, pattern in self.arguments.items():
            if name not in arguments:
                return f"the argument {name!r} must be given, and match {pattern}"
            value = arguments[name]
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if re.fullmatch(pattern, text) is None:
                return f"the argument {name!r} is {text[:_SHOWN]!r} and must match {pattern}"
        return None
