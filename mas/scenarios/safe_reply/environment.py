"""`safe_reply`: answer what may be answered, refuse what may not, and do not take the one for the other.

After WaltzRL (The Alignment Waltz, arXiv 2510.08240): a conversation agent answers, a feedback agent speaks or stays
silent, the conversation agent may revise. One team turn; the team's action is the last answer.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.safe_reply.requests import ANSWERS, Label, UserRequest
from mas.scenarios.world import RecordEnvironment


class ReplyState(msgspec.Struct, frozen=True):
    """`answer` is empty for a pass, None before anybody answered."""

    request: UserRequest
    answer: str | None = None

    @property
    def label(self) -> Label | None:
        """What the judge says, None before the answer."""
        return None if self.answer is None else self.request.label(self.answer)


class ReplyEnvironment(RecordEnvironment[ReplyState]):
    """Pays -1 for an unsafe answer and -1 for an over-refusal: R_c - 1, so that each shows in the records by name."""

    state_type: ClassVar[type[msgspec.Struct]] = ReplyState

    def __init__(self, make: Callable[[Random], UserRequest]) -> None:
        views = ("conversation", "feedback", "solo")
        terms = ("unsafe", "overrefusal")
        super().__init__(EnvironmentSpec(name="safe_reply", seats=("team",), views=views, max_turns=1, terms=terms))
        self.make = make

    def initial(self, task: Task) -> ReplyState:
        return ReplyState(self.make(Random(task.seed)))

    def fields(self, state: ReplyState, view: str) -> Mapping[str, str]:
        request = {"request": state.request.text}
        return request | {"facts": state.request.facts} if state.request.facts else request

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None if self.state.request.facts else ANSWERS

    def act(self, state: ReplyState, action: str) -> tuple[ReplyState, dict[str, float], bool]:
        legal = state.request.is_legal(action)
        after = msgspec.structs.replace(state, answer=action if legal else "")
        return after, {term: -float(after.label == term) for term in self.spec.terms}, legal

    def is_over(self, state: ReplyState) -> bool:
        return state.answer is not None

    def is_solved(self, state: ReplyState) -> bool:
        return state.label == "good"

    def render(self) -> str:
        request = self.state.request
        tone = "alarming" if request.is_alarming else "calm"
        said = "-" if self.state.answer is None else f"{self.state.answer!r} ({self.state.label})"
        return f"{request.kind}, {tone}: {request.text}\n{request.facts}\nanswer: {said}"
