"""A role as a user writes it: its own payload logic and routes in a few lines."""

from typing import ClassVar

from mas.core.messages import Note, Payload
from mas.roles import PromptedRole


class Call(Note):
    """A note that chooses the way on by its text."""

    @property
    def route(self) -> str:
        return self.text


class Referee(PromptedRole):
    """Calls `play` or `stop`."""

    default_routes: ClassVar[tuple[str, ...]] = ("play", "stop")
    default_failure_route: ClassVar[str | None] = "stop"

    def answer(self, text: str) -> Payload:
        return Call(text=text) if text in self.routes else self.failure(text, "is no call")


class NotARole:
    """Can be made like a role, and is none."""

    def __init__(self, name: str, spec: object) -> None:
        self.name, self.spec = name, spec


class NeedsMore(PromptedRole):
    """Cannot be made from (name, spec)."""

    def __init__(self, name: str, spec: object, more: int) -> None:
        raise AssertionError


NOT_A_CLASS = 3
