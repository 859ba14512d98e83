"""`subagents`: a planner calls a sub-agent, reads its report, calls again, and answers (after MATPO, arXiv 2510.04678).

A team turn is one call with its report, or the answer. Calls and reports are all that the planner is shown of what a
sub-agent did; a sub-agent sees neither the question nor other reports.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.delegate.cases import DelegateCase, make
from mas.scenarios.world import RecordEnvironment, kept_text

PLANNER, SOLO = "planner", "solo"
REPORTERS = ("worker.reader", "left_clerk", "right_clerk", "refiner")
"""Agents whose output is a report to the planner."""
VIEWS = (PLANNER, "searcher", "reader", "coordinator", "left_clerk", "right_clerk", "local", "web", "refiner", SOLO)
LEFT, RIGHT = "p", "q"
"""The facts that each of two clerks, or of two search agents, has in its part of the archive."""
DIGITS = "0123456789"
NO_REPORT = "?"
_ANSWERS = tuple(f"={digit}" for digit in DIGITS)


class WorkerCall(msgspec.Struct, frozen=True):
    """A call and what the planner was told."""

    call: str
    report: str


class CallState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's."""

    case: DelegateCase
    calls: tuple[WorkerCall, ...] = ()
    turn: int = 0
    answer: str | None = None


class CallEnvironment(RecordEnvironment[CallState]):
    """The team's action is a call and its report as `joint`, or the answer, `=7`."""

    state_type: ClassVar[type[msgspec.Struct]] = CallState

    def __init__(self, spare: int) -> None:
        super().__init__(
            EnvironmentSpec(name="subagents", seats=("team",), views=VIEWS, max_turns=3 + spare, terms=("right",))
        )

    def initial(self, task: Task) -> CallState:
        return CallState(make(Random(task.seed), "letters", 2))

    def fields(self, state: CallState, view: str) -> Mapping[str, str]:
        case = state.case
        if view in (PLANNER, SOLO):
            seen = {"question": case.question, "reports": "".join(one.call + one.report for one in state.calls)}
            return seen | {"archive": case.archive} if view == SOLO else seen
        part = {"left_clerk": LEFT, "local": LEFT, "right_clerk": RIGHT, "web": RIGHT}.get(view)
        if view == "reader" or part is not None:
            kept = [line for line in case.documents if part is None or line[1] == part]
            return {"archive": "\n".join(kept)}
        return {}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        """The answers; calls with their reports, which are actions too, are too many to be listed."""
        return _ANSWERS

    def act(self, state: CallState, action: str) -> tuple[CallState, dict[str, float], bool]:
        said = read_joint(action, (PLANNER, *REPORTERS)) or ({SOLO: action} if action else {})
        after = msgspec.structs.replace(state, turn=state.turn + 1)
        text = said.get(PLANNER, said.get(SOLO, ""))
        if text.startswith("=") and text[1:] in tuple(DIGITS):
            after = msgspec.structs.replace(after, answer=text[1:])
            return after, {"right": float(self.is_solved(after))}, True
        if SOLO in said:
            return after, {"right": 0.0}, False
        if PLANNER in said:
            report = next((said[name] for name in REPORTERS if name in said), NO_REPORT)
            called = WorkerCall(kept_text(text[-2:]), kept_text(report, 1))
            after = msgspec.structs.replace(after, calls=(*after.calls, called))
        return after, {"right": 0.0}, True

    def is_over(self, state: CallState) -> bool:
        return state.answer is not None or state.turn >= self.spec.max_turns

    def is_solved(self, state: CallState) -> bool:
        return state.answer == state.case.answer

    def render(self) -> str:
        state = self.state
        needed = [state.case.documents[at] for at in state.case.needed]
        calls = [f"{one.call} -> {one.report}" for one in state.calls]
        said = "-" if state.answer is None else state.answer
        return "\n".join([state.case.question, *needed, *calls, f"answer {said}, right is {state.case.answer}"])
