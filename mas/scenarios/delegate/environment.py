"""`delegate`: a planner breaks a question up, workers search an archive for the parts, a composer answers (after MATPO,
arXiv 2510.04678).

One team turn; the team's action is the answer. Planner and composer never see the archive, workers never the question.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.delegate.cases import DelegateCase, Style, make
from mas.scenarios.world import RecordEnvironment

_NUMBER = re.compile(r"-?[0-9]{1,12}")
DIGITS = "0123456789"


class DelegateState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass."""

    case: DelegateCase
    answer: str | None = None


class DelegateEnvironment(RecordEnvironment[DelegateState]):
    """The team's action is the answer."""

    state_type: ClassVar[type[msgspec.Struct]] = DelegateState

    def __init__(self, style: Style, parts: int) -> None:
        views = ("planner", "worker", "composer", "solo")
        super().__init__(EnvironmentSpec(name="delegate", seats=("team",), views=views, max_turns=1, terms=("right",)))
        self.style: Style = style
        self.parts = parts

    def initial(self, task: Task) -> DelegateState:
        return DelegateState(make(Random(task.seed), self.style, self.parts))

    def fields(self, state: DelegateState, view: str) -> Mapping[str, str]:
        question, archive = {"question": state.case.question}, {"archive": state.case.archive}
        return {"worker": archive, "solo": question | archive}.get(view, question)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(DIGITS) if self.style == "letters" else None

    def act(self, state: DelegateState, action: str) -> tuple[DelegateState, dict[str, float], bool]:
        legal = action == "" or self._is_answer(action)
        after = msgspec.structs.replace(state, answer=action if legal else "")
        return after, {"right": float(self.is_solved(after))}, legal

    def is_over(self, state: DelegateState) -> bool:
        return state.answer is not None

    def is_solved(self, state: DelegateState) -> bool:
        return bool(state.answer) and int(state.answer or 0) == int(state.case.answer)

    def render(self) -> str:
        case, said = self.state.case, self.state.answer
        entries = [case.documents[at] for at in case.needed]
        answer = f"answer {'-' if said is None else repr(said)}, right is {case.answer}"
        return "\n".join([case.question, *entries, answer])

    def _is_answer(self, action: str) -> bool:
        return action in tuple(DIGITS) if self.style == "letters" else _NUMBER.fullmatch(action) is not None
