"""`discussion`: a solution, an evaluation of it, and a score (after CoMAS, arXiv 2510.08529).

The last solution is the answer. What members say of it the world hears only to measure them. One team turn.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.discussion.questions import DIGITS, DiscussionQuestion, Style, is_number, make
from mas.scenarios.discussion.scoring import read_score, read_verdict, true_score
from mas.scenarios.world import RecordEnvironment

MEMBERS = ("solver", "evaluator", "scorer")
VIEWS = (*MEMBERS, "solver2", "evaluator2", "scorer2", "solo")


class DiscussionState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass. `approved` and `score`: what was said of it, None for
    nothing that can be read."""

    question: DiscussionQuestion
    answer: str | None = None
    approved: bool | None = None
    score: int | None = None


class DiscussionEnvironment(RecordEnvironment[DiscussionState]):
    """The team's action is what solver, evaluator and scorer said, as `joint`, or a solution alone. All members see the
    question; nobody sees more than another.

    Args:
        pays: whether the truth is paid for: `right` is 1 for the right answer. Otherwise nothing is paid at all.
    """

    state_type: ClassVar[type[msgspec.Struct]] = DiscussionState

    def __init__(self, style: Style, steps: int, *, pays: bool) -> None:
        super().__init__(
            EnvironmentSpec(name="discussion", seats=("team",), views=VIEWS, max_turns=1, terms=("right",))
        )
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
        said = read_joint(action, MEMBERS)
        if said is None:
            said = {"solver": action}
        answer = said.get("solver", "")
        legal = answer == "" or self._is_answer(answer)
        after = msgspec.structs.replace(
            state,
            answer=answer if legal else "",
            approved=read_verdict(said.get("evaluator", "")),
            score=read_score(said.get("scorer", "")),
        )
        return after, {"right": float(self.is_solved(after))} if self.pays else {}, legal

    def is_over(self, state: DiscussionState) -> bool:
        return state.answer is not None

    def is_solved(self, state: DiscussionState) -> bool:
        return state.question.is_right(state.answer)

    def measures(self) -> Mapping[str, float]:
        """Whether the evaluator's word on the answer was true, and whether the score was the one due; where there is
        any."""
        state, right = self.state, self.success()
        found = {}
        if state.approved is not None:
            found["evaluator_accuracy"] = float(state.approved is right)
        if state.score is not None:
            found["scorer_accuracy"] = float(state.score == true_score(right, state.approved))
        return found

    def render(self) -> str:
        state = self.state
        said = "-" if state.answer is None else repr(state.answer)
        verdict = {True: "approved", False: "rejected", None: "not judged"}[state.approved]
        return f"{state.question.text} = {state.question.answer}; answer {said}, {verdict}, score {state.score or '-'}"

    def _is_answer(self, action: str) -> bool:
        return action in tuple(DIGITS) if self.style == "digits" else is_number(action)
