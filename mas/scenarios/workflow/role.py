"""The planner of `workflow`: its output is a plan only if every step is a call with parameters."""

from typing import ClassVar

from mas.core.errors import ToolRefused
from mas.core.messages import Payload, Plan
from mas.roles.planner import Planner
from mas.scenarios.workflow.jobs import read_compact


class StepPlanner(Planner):
    """Emits a plan of typed steps, or a failure that says which step is none."""

    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})

    def answer(self, text: str) -> Payload:
        try:
            read_compact(text)
        except ToolRefused as error:
            return self.failure(text, str(error))
        return Plan(text=text)
