"""The contract of every role: a view becomes a prompt, a text becomes a typed payload."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from mas.core.engine import Grammar
from mas.core.environment import Observation
from mas.core.messages import Payload
from mas.core.team import RoleSpec


class Message(msgspec.Struct, frozen=True):
    """A payload with its sender, as a role's context policy sees it."""

    sender: str
    payload: Payload


class View(msgspec.Struct, frozen=True, kw_only=True):
    """All that one agent may know at its decision point.

    Attributes:
        messages: payloads addressed to it in this team turn, oldest first.
        own: its own earlier outputs in this team turn, oldest first.
    """

    observation: Observation
    messages: tuple[Message, ...] = ()
    own: tuple[Payload, ...] = ()


@runtime_checkable
class Role(Protocol):
    """Who says what. Stateless: the same view gives the same prompt."""

    name: str
    spec: RoleSpec
    emits: str
    accepts: frozenset[str]
    routes: tuple[str, ...]

    def prompt(self, view: View) -> str:
        """The compact prompt, for base models."""

    def chat(self, view: View) -> tuple[str, str]:
        """System and user message, for models that follow instructions; an empty system message is left out."""

    def prefill(self, view: View) -> str:
        """How the answer begins in a chat, often with nothing: part of the prompt, not of the answer."""

    def parse(self, text: str) -> Payload:
        """The typed result, or a `Failure` with its cause; never raises."""


@runtime_checkable
class ConstrainedRole(Protocol):
    """A role that says which texts its answer may be."""

    def grammar(self, view: View) -> Grammar | None:
        """Of the text behind the prompt (and behind `prefill`); None: any text.

        Raises:
            ConfigError: it reads a field that the observation does not have.
        """


Roles = Mapping[str, Role]
