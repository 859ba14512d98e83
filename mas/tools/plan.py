"""Plans of tool calls: typed steps with parameters, kept over turns, bound to results, and revised where a step failed.

Sources: AdaPlanner, arXiv 2305.16653 (a plan is refined in the midst of its execution); Plan-and-Act, arXiv 2503.09572
(the planner is asked again with what came of the last step).
"""

from collections.abc import Iterable

import msgspec

from mas.core.errors import ToolRefused
from mas.core.tool_call import ToolCall

LAST = "_"
"""An argument of a planned step that stands for the result of the step before it."""


class PlanState(msgspec.Struct, frozen=True):
    """A plan and how far it is carried out.

    Attributes:
        steps: in order; arguments may be `LAST`.
        done: how many were carried out.
        is_failed: the step after these failed, and the rest is void until the plan is revised.
        revisions: how many plans took the place of a failed one.
    """

    steps: tuple[ToolCall, ...] = ()
    done: int = 0
    is_failed: bool = False
    revisions: int = 0

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """What is still to be done; empty once a step has failed."""
        return () if self.is_failed else self.steps[self.done :]

    def revised(self, steps: Iterable[ToolCall]) -> "PlanState":
        """These steps in place of whatever was pending."""
        return PlanState(tuple(steps), revisions=self.revisions + self.is_failed)

    def after(self, *, is_done: bool) -> "PlanState":
        """The next step was carried out, or has failed."""
        if is_done:
            return msgspec.structs.replace(self, done=self.done + 1)
        return msgspec.structs.replace(self, is_failed=True)


def bound(step: ToolCall, last: int | str | None) -> ToolCall:
    """The step with the last result in place of every `LAST`.

    Raises:
        ToolRefused: it needs a result, and there is none yet.
    """
    if LAST not in step.arguments.values():
        return step
    if last is None:
        raise ToolRefused(f"step {step.name!r} needs the result of a step before it, and there is none")
    return ToolCall(step.name, {name: last if value == LAST else value for name, value in step.arguments.items()})
