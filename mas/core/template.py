"""Prompt templates: text with `{field}`, `{from.AGENT}`, `{self}`, `{experiences}`; nothing that could be evaluated.

Below the roles because the graph checks what a template reads against who sends.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

SELF = "self"
EXPERIENCES = "experiences"
_FROM = "from."
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]|[^{}]+")
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed template.

    Attributes:
        pieces: (is a name, literal text or the name), in order.
    """

    pieces: tuple[tuple[bool, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it reads, in order, repeated where it repeats."""
        return tuple(text for is_name, text in self.pieces if is_name)

    @property
    def senders(self) -> tuple[str, ...]:
        """Agents whose messages it reads."""
        return tuple(name.removeprefix(_FROM) for name in self.names if name.startswith(_FROM))

    @property
    def fields(self) -> tuple[str, ...]:
        """Observation fields that it reads."""
        return tuple(name for name in self.names if name not in (SELF, EXPERIENCES) and not name.startswith(_FROM))

    def fill(
        self, fields: Mapping[str, str], messages: Mapping[str, str], own: str, experiences: Sequence[str] = ()
    ) -> str:
        """The text with every name replaced.

        Args:
            messages: last content by sender; a sender without one reads as the empty text.
            own: what `{self}` stands for.
            experiences: a line each where `{experiences}` stands, and in front of a template that does not say where.

        Raises:
            ConfigError: a field that the observation does not have.
        """
        lines = "".join(f"{text}\n" for text in experiences)
        special = {SELF: own, EXPERIENCES: lines}
        filled = "".join(_read(text, fields, messages, special) if is_name else text for is_name, text in self.pieces)
        return filled if EXPERIENCES in self.names else lines + filled


def parse_template(text: str) -> Template:
    """Split a template at its names; `{{` and `}}` are literal braces.

    Raises:
        ConfigError: a single brace, or braces around something that is no name.
    """
    pieces: list[tuple[bool, str]] = []
    for match in _PIECE.finditer(text):
        piece, name = match.group(), match.group(1)
        if name is not None:
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"template {text!r} has {piece!r}, which is no name; write {{field}}, {{from.AGENT}}, {{self}} "
                    "or {{experiences}}, and double the braces that are meant literally"
                )
            pieces.append((True, name))
        elif piece in ("{", "}"):
            raise ConfigError(f"template {text!r} has a single {piece!r} at {match.start()}; a literal one is doubled")
        else:
            pieces.append((False, {"{{": "{", "}}": "}"}.get(piece, piece)))
    return Template(tuple(pieces))


def _read(name: str, fields: Mapping[str, str], messages: Mapping[str, str], special: Mapping[str, str]) -> str:
    if name in special:
        return special[name]
    if name.startswith(_FROM):
        return messages.get(name.removeprefix(_FROM), "")
    if name not in fields:
        options = (*fields, *special, "from.AGENT")
        raise ConfigError(
            f"template reads {{{name}}}, which the observation does not have. {did_you_mean(name, options)}"
        )
    return fields[name]
