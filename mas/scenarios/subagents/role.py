"""Roles of `subagents` that choose who speaks next."""

from typing import ClassVar

from mas.core.messages import Payload, Plan
from mas.roles.planner import Planner
from mas.scenarios.subagents.environment import DIGITS


class CallingPlanner(Planner):
    """Emits a call, `bp`, on the route `call`, or the answer, `=7`, on the route `answer`."""

    default_routes: ClassVar[tuple[str, ...]] = ("call", "answer")
    default_failure_route: ClassVar[str | None] = "answer"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})
    size: ClassVar[int] = 2

    def answer(self, text: str) -> Payload:
        if text[0] == "=":
            if text[1:] not in tuple(DIGITS):
                return self.failure(text, "is no answer: write = and one digit")
            return Plan(text=text, chosen_route="answer")
        if len(text) != self.size or not text.isalpha():
            return self.failure(text, f"is no call: write {self.size} letters")
        return Plan(text=text, chosen_route=self.called(text))

    def called(self, text: str) -> str:
        """The route of a call."""
        return "call"


class ChoosingPlanner(CallingPlanner):
    """Says first whom it calls: `lbp` the local agent, `wbp` the web agent."""

    default_routes: ClassVar[tuple[str, ...]] = ("local", "web", "answer")
    size: ClassVar[int] = 3

    def called(self, text: str) -> str:
        return "local" if text[0] == "l" else "web"


class Coordinator(Planner):
    """Hands a planner's call to one of two clerks: `lbp` to the left one, `rbp` to the right one."""

    default_accepts: ClassVar[frozenset[str]] = frozenset({"plan"})
    default_routes: ClassVar[tuple[str, ...]] = ("left", "right")
    default_failure_route: ClassVar[str | None] = "left"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})
    duty: ClassVar[str] = "Say which clerk is to do what the planner asks for."

    def answer(self, text: str) -> Payload:
        return Plan(text=text, chosen_route="right" if text.startswith("r") else "left")
