"""`propose`: one writes questions with a given answer, five attempt them, and gates let no bad question through.

After Search Self-Play (arXiv 2510.18821). The proposer moves first; a proposal that passes all gates is attempted by
all solvers at once, any other one by nobody. Held-out tasks end with a question of the world's own, the exam.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar, Literal

import msgspec

from mas.core.environment import EnvironmentSpec, Step, Task
from mas.scenarios.propose.questions import (
    GATES,
    QUESTIONS,
    VALUES,
    Gate,
    ProposeCase,
    answers,
    failed_gate,
    make,
    told_proposer,
    told_solver,
)
from mas.scenarios.world import RecordWorld

PROPOSER = "proposer"
SOLVERS = tuple(f"solver_{number}" for number in range(5))
"""As many attempts at a question as the paper makes."""
EXAMINED = SOLVERS[0]
"""Who sits the exam."""
Source = Literal["proposer", "world"]


class ProposeState(msgspec.Struct, frozen=True):
    """The whole state; answers are empty where nothing was said, or what is no digit.

    Attributes:
        has_exam: whether the task ends with the world's question.
        question: what the solvers attempt; None: nothing, or nothing yet.
        refused: the gate that the proposal did not pass.
        attempts: the solvers' answers, None before them; exam: the answer to the world's question, likewise.
    """

    case: ProposeCase
    has_exam: bool
    is_proposed: bool = False
    question: str | None = None
    refused: Gate | None = None
    attempts: tuple[str, ...] | None = None
    exam: str | None = None

    @property
    def outcomes(self) -> tuple[float, ...]:
        """1 for each attempt that was right, else 0; empty before them, or where nobody attempted anything."""
        right = answers(self.question, self.case.documents) if self.question else ()
        return tuple(float(attempt in right) for attempt in self.attempts or ())


class ProposeEnvironment(RecordWorld[ProposeState]):
    """Pays a proposal that is accepted 1, and an attempt that is right 1."""

    state_type: ClassVar[type[msgspec.Struct]] = ProposeState

    def __init__(self, source: Source, asked: int) -> None:
        seats = (PROPOSER, *SOLVERS)
        super().__init__(
            EnvironmentSpec(
                name="propose",
                seats=seats,
                views=seats,
                max_turns=3,
                terms=("accepted", "right"),
                dynamics="simultaneous",
            )
        )
        self.source, self.asked = source, asked

    def initial(self, task: Task) -> ProposeState:
        case, has_exam = make(Random(task.seed), self.asked), task.split == "eval"
        if self.source == "proposer":
            return ProposeState(case, has_exam)
        return ProposeState(case, has_exam, is_proposed=True, question=None if has_exam else case.fixed)

    def moving(self, state: ProposeState) -> tuple[str, ...]:
        if not state.is_proposed:
            return (PROPOSER,)
        if state.question is not None and state.attempts is None:
            return SOLVERS
        return (EXAMINED,) if state.has_exam and state.exam is None else ()

    def fields(self, state: ProposeState, view: str) -> Mapping[str, str]:
        if view == PROPOSER:
            return {"told": told_proposer(state.case)}
        question = state.question if state.attempts is None else None
        if question is None and state.has_exam and state.is_proposed and view == EXAMINED:
            question = state.case.fixed
        return {"told": told_solver(state.case, question or "")}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return QUESTIONS if seat == PROPOSER else tuple(VALUES)

    def advance(self, state: ProposeState, actions: Mapping[str, str]) -> tuple[ProposeState, Step]:
        moving = self.moving(state)
        illegal = tuple(seat for seat in moving if actions[seat] not in ("", *(self.legal(seat) or ())))
        said = {seat: "" if seat in illegal else actions[seat] for seat in moving}
        if moving == (PROPOSER,):
            refused = failed_gate(state.case, said[PROPOSER])
            question = said[PROPOSER] if refused is None else None
            after = msgspec.structs.replace(state, is_proposed=True, question=question, refused=refused)
            return after, Step(rewards={PROPOSER: {"accepted": float(refused is None)}}, illegal=illegal)
        if moving == SOLVERS:
            after = msgspec.structs.replace(state, attempts=tuple(said[seat] for seat in SOLVERS))
            paid = {seat: {"right": right} for seat, right in zip(SOLVERS, after.outcomes, strict=True)}
            return after, Step(rewards=paid, illegal=illegal)
        after = msgspec.structs.replace(state, exam=said[EXAMINED])
        return after, Step(rewards={EXAMINED: {"right": float(self.is_solved(after))}}, illegal=illegal)

    def is_solved(self, state: ProposeState) -> bool:
        """Of held-out tasks whether the exam was passed; of others whether an attempt was right."""
        if state.has_exam:
            return state.exam in answers(state.case.fixed, state.case.documents)
        return any(state.outcomes)

    def measures(self) -> Mapping[str, float]:
        """`valid`: 1 for a proposal that was accepted, else 0; by its name the gate that it failed at.

        Of a question that was attempted `difficulty`, the number to be added, `solve_rate`, and `in_band`, 1 where some
        attempts were right and not all.
        """
        state = self.state
        found: dict[str, float] = {}
        if self.source == "proposer" and state.is_proposed:
            found["valid"] = float(state.refused is None)
            found |= {gate: float(state.refused == gate) for gate in GATES}
        if outcomes := state.outcomes:
            solved = sum(outcomes) / len(outcomes)
            found |= {"solve_rate": solved, "in_band": float(0 < solved < 1)}
        if state.question is not None:
            found["difficulty"] = float(abs(int(state.question[1:])))
        return found

    def render(self) -> str:
        state, case = self.state, self.state.case
        proposed = state.question or (f"refused: {state.refused}" if state.refused else "-")
        return (
            f"documents {' '.join(case.own)}, noise {' '.join(case.noise)}, answer {case.answer}, asked before: "
            f"{' '.join(case.asked) or '-'}\nquestion: {proposed}, attempts: {' '.join(state.attempts or ()) or '-'}\n"
            f"exam: {case.fixed if state.has_exam else '-'}: {state.exam or '-'}"
        )
