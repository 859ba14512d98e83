"""`discussion`: a solution, an evaluation of it, and a score (after CoMAS, arXiv 2510.08529).

The world knows the question and hears the solution; what the members think of it stays among them. One team turn.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.discussion.questions import DIGITS, Question, Style, is_number, make
from mas.scenarios.world import RecordEnvironment

VIEWS = ("solver", "evaluator", "scorer", "solver2", "evaluator2", "scorer2", "solo")


class DiscussionState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass."""

    question: Question
    answer: str | None = None


class DiscussionEnvironment(RecordEnvironment[DiscussionState]):
    """The team's action is the last solution. All members see the question; nobody sees more than another.

    Args:
        pays: whether the truth is paid for: `right` is 1 for the right answer. Otherwise nothing is paid at all.
    """

    state_type: ClassVar[type[msgspec.Struct]] = DiscussionState

    def __init__(self, style: Style, steps: int, *, pays: bool) -> None:
        super().__init__(EnvironmentSpec(name="discussion", seats=("team",), views=VIEWS, max_turns=1, terms=("right",)))
        self.style: Style = style
        self.steps = steps
        self.pays = pays

    def initial(self, task: Task) -> DiscussionState:
        return DiscussionState(make(Random(task.seed), self.style, self.steps))

    def fields(self, state: DiscussionState, view: str) -> Mapping[str, str]:
        return {"question": state.question.text}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(DIGITS) if self.style == "digits" else None

    def act(self, state: DiscussionState, action: str) -> tuple[DiscussionState, dict[str, float], bool]:
        legal = action == "" or self._is_answer(action)
        after = msgspec.structs.replace(state, answer=action if legal else "")
        return after, {"right": float(self.is_solved(after))} if self.pays else {}, legal

    def is_over(self, state: DiscussionState) -> bool:
        return state.answer is not None

    def is_solved(self, state: DiscussionState) -> bool:
        return state.question.is_right(state.answer)

    def render(self) -> str:
        state = self.state
        said = "-" if state.answer is None else repr(state.answer)
        return f"{state.question.text} = {state.question.answer}; answer {said}"

    def _is_answer(self, action: str) -> bool:
        return action in tuple(DIGITS) if self.style == "digits" else is_number(action)
