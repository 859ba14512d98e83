"""The planner of `tool_use`: names the next tool, or says that enough is known."""

from typing import ClassVar

from mas.core.messages import Payload, Plan
from mas.roles.builtin import Planner

ENOUGH = ("=", "answer", "nothing")
"""What it says when no tool is needed any more: in compact form, in JSON, and in words."""


class ToolPlanner(Planner):
    """Emits a plan whose route is `answer` where it says so, and `call` else."""

    default_routes: ClassVar[tuple[str, ...]] = ("call", "answer")
    default_failure_route: ClassVar[str | None] = "call"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})

    def answer(self, text: str) -> Payload:
        return Plan(text=text, chosen_route="answer" if text in ENOUGH else "call")
