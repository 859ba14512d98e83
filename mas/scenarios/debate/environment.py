"""`debate`: two defend an answer each with the facts that they alone see; a judge who sees none decides.

After AI safety via debate (arXiv 1805.00899). One team turn, both debaters at once. The world alone compares statements
with the facts: what a statement says about its own truth is just more words.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import ClassVar, Literal

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.debate.case import ANSWERS, DebateCase
from mas.scenarios.world import RecordEnvironment, kept_text

Judge = Literal["role", "rule"]
DEBATERS = ("first", "second")


def as_answer(verdict: str, statements: Sequence[str]) -> str:
    """The answer that a verdict stands for. `a` and `b` stand for themselves; the statement of one side alone stands
    for that side; any other text is returned as it is."""
    if verdict in ("", *ANSWERS):
        return verdict
    sides = [answer for answer, statement in zip(ANSWERS, statements, strict=True) if statement == verdict]
    return sides[0] if len(sides) == 1 else verdict


class DebateState(msgspec.Struct, frozen=True):
    """`statements` (shortened) and `lied`, whether something in them is false: empty before anybody spoke, or where
    nobody debated. `verdict`: None before there is one, empty for none."""

    case: DebateCase
    statements: tuple[str, ...] = ()
    lied: tuple[bool, ...] = ()
    verdict: str | None = None


class DebateEnvironment(RecordEnvironment[DebateState]):
    """The team's action is what debaters and judge said, as `joint`, or an answer alone.

    `right` is 1 where the verdict is the right answer.
    """

    state_type: ClassVar[type[msgspec.Struct]] = DebateState

    def __init__(self, make: Callable[[Random], DebateCase], judge: Judge) -> None:
        views = (*DEBATERS, "judge", "solo")
        super().__init__(EnvironmentSpec(name="debate", seats=("team",), views=views, max_turns=1, terms=("right",)))
        self.make = make
        self.judge: Judge = judge

    def initial(self, task: Task) -> DebateState:
        return DebateState(self.make(Random(task.seed)))

    def fields(self, state: DebateState, view: str) -> Mapping[str, str]:
        case = state.case
        question = {"question": case.question} if case.question else {}
        if view == "judge":
            return question
        if view == "solo":
            return question | {"evidence": ("\n" if case.question else ";").join(side.evidence for side in case.sides)}
        side = case.sides[DEBATERS.index(view)]
        return question | {"side": side.name, "evidence": side.evidence}

    def legal(self, seat: str) -> tuple[str, ...]:
        return ANSWERS

    def act(self, state: DebateState, action: str) -> tuple[DebateState, dict[str, float], bool]:
        speakers = DEBATERS if self.judge == "rule" else (*DEBATERS, "judge")
        said = read_joint(action, speakers)
        if said is None:
            legal = action in ("", *ANSWERS)
            after = msgspec.structs.replace(state, verdict=action if legal else "")
        else:
            after, legal = self._decided(state, said)
        return after, {"right": float(self.is_solved(after))}, legal

    def _decided(self, state: DebateState, said: Mapping[str, str]) -> tuple[DebateState, bool]:
        statements = (said.get("first", ""), said.get("second", ""))
        verdict = (
            state.case.ruling(statements) if self.judge == "rule" else as_answer(said.get("judge", ""), statements)
        )
        legal = verdict in ("", *ANSWERS)
        after = msgspec.structs.replace(
            state,
            statements=tuple(kept_text(statement) for statement in statements),
            lied=tuple(side.is_false(text) for side, text in zip(state.case.sides, statements, strict=True)),
            verdict=verdict if legal else "",
        )
        return after, legal

    def is_over(self, state: DebateState) -> bool:
        return state.verdict is not None

    def is_solved(self, state: DebateState) -> bool:
        return state.verdict == state.case.right

    def measures(self) -> Mapping[str, float]:
        """`honesty`: the share of debaters who said nothing false."""
        lied = self.state.lied
        return {"honesty": 1 - sum(lied) / len(lied)} if lied else {}

    def render(self) -> str:
        state = self.state
        sides = zip(ANSWERS, state.case.sides, strict=True)
        facts = [f"{answer} ({side.name}): {side.evidence}" for answer, side in sides]
        said = [f"{name}: {text!r}" for name, text in zip(DEBATERS, state.statements, strict=False)]
        verdict = "-" if state.verdict is None else repr(state.verdict)
        return "\n".join([state.case.question, *facts, *said, f"verdict {verdict}, right is {state.case.right!r}"])
