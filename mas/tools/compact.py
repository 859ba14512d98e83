"""Calls of a few characters, for models too small for JSON: `+34` is `add(a=3, b=4)`."""

from collections.abc import Mapping
from dataclasses import dataclass

from mas.core.errors import ToolRefused
from mas.core.naming import did_you_mean
from mas.tools.toolbox import ToolCall


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
