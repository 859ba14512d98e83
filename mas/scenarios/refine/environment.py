"""`refine`: answer, criticise, answer again (after MALT, arXiv 2412.01928).

A generator answers an arithmetic question, a verifier criticises, a refiner has the last word. One team turn.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.refine.questions import DIGITS, RefineQuestion, Style, direction, make
from mas.scenarios.world import RecordEnvironment

_NUMBER = re.compile(r"-?[0-9]{1,40}")
PIONEER, OBSERVER = "pioneer", "observer"
VIEWS = ("generator", "verifier", "refiner", "solo", "first", "second", "third", PIONEER, OBSERVER, "leader")


class RefineState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's, empty for a pass. `pioneer`: who spoke first in a pair, None elsewhere."""

    question: RefineQuestion
    answer: str | None = None
    pioneer: str | None = None


class RefineEnvironment(RecordEnvironment[RefineState]):
    """The team's action is the answer, or a pair's two as `joint`, of which the observer's counts. All members see the
    question; nobody sees more than another."""

    state_type: ClassVar[type[msgspec.Struct]] = RefineState

    def __init__(self, style: Style, operands: int) -> None:
        super().__init__(EnvironmentSpec(name="refine", seats=("team",), views=VIEWS, max_turns=1, terms=("right",)))
        self.style: Style = style
        self.operands = operands

    def initial(self, task: Task) -> RefineState:
        return RefineState(make(Random(task.seed), self.style, self.operands))

    def fields(self, state: RefineState, view: str) -> Mapping[str, str]:
        question = state.question
        return {"question": question.text} | ({"numbers": ", ".join(question.numbers)} if question.numbers else {})

    def legal(self, seat: str) -> tuple[str, ...] | None:
        if self.style == "words":
            return self.state.question.numbers
        return tuple(DIGITS) if self.style != "number" else None

    def act(self, state: RefineState, action: str) -> tuple[RefineState, dict[str, float], bool]:
        pair = read_joint(action, (PIONEER, OBSERVER)) or {}
        answer = pair.get(OBSERVER, "") if pair else action
        legal = answer == "" or self._is_answer(state.question, answer)
        after = msgspec.structs.replace(
            state, answer=answer if legal else "", pioneer=self._kept(state, pair.get(PIONEER))
        )
        return after, {"right": float(self.is_solved(after))}, legal

    def is_over(self, state: RefineState) -> bool:
        return state.answer is not None

    def is_solved(self, state: RefineState) -> bool:
        return self.is_right(state.question, state.answer or "")

    def is_right(self, question: RefineQuestion, said: str) -> bool:
        """Whether this is the answer; in style `number` also with zeros in front of it."""
        return self._is_answer(question, said) and int(said) == int(question.answer)

    def measures(self) -> Mapping[str, float]:
        """Whether a pair's pioneer was right, whatever the observer made of it."""
        said = self.state.pioneer
        return {} if said is None else {"pioneer_success": float(self.is_right(self.state.question, said))}

    def guidance(self) -> str:
        """See `mas.core.environment.Guiding`: whether the answer was too low or too high."""
        return direction(self.state.answer or "", self.state.question.answer)

    def render(self) -> str:
        state = self.state
        said = "-" if state.answer is None else repr(state.answer)
        return f"{state.question.text} = {state.question.answer}; answer {said}"

    def _kept(self, state: RefineState, said: str | None) -> str | None:
        return said if said is None or self._is_answer(state.question, said) else ""

    def _is_answer(self, question: RefineQuestion, action: str) -> bool:
        if self.style == "words":
            return action in question.numbers
        if self.style == "number":
            return _NUMBER.fullmatch(action) is not None
        return action in tuple(DIGITS)
