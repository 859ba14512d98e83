"""`math_team`: a solver reaches an exact answer with a calculator that the environment carries out.

The team's action is a call or the answer, which ends the episode. A call that is refused spends the turn.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.errors import ToolRefused
from mas.scenarios.math_team.problems import MathProblem, MathRules, calculated, called, make
from mas.scenarios.world import RecordEnvironment, kept_text
from mas.tools import calculate

_COMPACT_ANSWER = re.compile(r"=([0-9])\.?")
_ANSWER = re.compile(r"-?[0-9]{1,200}(?:[/.][0-9]{1,200})?")
REFUSED = "!"


class MathState(msgspec.Struct, frozen=True):
    """`history`: (call, result) by turn. `reached`: how many milestones, counted up to the furthest."""

    problem: MathProblem
    history: tuple[tuple[str, str], ...] = ()
    reached: int = 0
    turn: int = 0
    answer: str | None = None


class MathEnvironment(RecordEnvironment[MathState]):
    """A call or the answer a turn."""

    state_type: ClassVar[type[msgspec.Struct]] = MathState
    history: ClassVar[tuple[str, ...]] = ("history", "turn")
    progress: ClassVar[float] = 0.5
    waste: ClassVar[float] = -0.1

    def __init__(self, rules: MathRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="math_team",
                seats=("team",),
                views=("solver", "verifier", "solo"),
                max_turns=rules.max_turns,
                terms=("right", "progress", "waste"),
            )
        )
        self.rules = rules

    def initial(self, task: Task) -> MathState:
        return MathState(make(Random(task.seed), self.rules))

    def fields(self, state: MathState, view: str) -> Mapping[str, str]:
        if self.rules.compact:
            history = "".join(result for _, result in state.history)
        else:
            history = "\n".join(f"{call} -> {result}" for call, result in state.history) or "nothing was calculated yet"
        return {"problem": state.problem.text, "history": history}

    def standing(self, state: MathState) -> Mapping[str, object]:
        """What is known, in whatever order it was asked."""
        return {**super().standing(state), "known": sorted(set(state.history))}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return _COMPACT_ACTIONS if self.rules.compact else None

    def act(self, state: MathState, action: str) -> tuple[MathState, dict[str, float], bool]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        answer = self.answer(action)
        if answer is not None:
            after = msgspec.structs.replace(later, answer=answer)
            return after, {"right": float(self.is_solved(after))}, True
        if not action:
            return later, {"waste": self.waste}, True
        try:
            expression = called(action, compact=self.rules.compact)
            result = calculated(expression, compact=self.rules.compact)
        except ToolRefused as error:
            shown = REFUSED if self.rules.compact else f"{REFUSED} {error}"
            return _noted(later, action, shown), {"waste": self.waste}, False
        after = _noted(later, action, result)
        reached = self.reached_by(state, expression, result)
        if reached <= state.reached:
            return after, {"waste": self.waste}, True
        gain = self.progress * (reached - state.reached) / len(state.problem.milestones)
        return msgspec.structs.replace(after, reached=reached), {"progress": gain}, True

    def is_call(self, action: str) -> bool:
        """Whether an action is a calculation that the calculator takes; an answer is none."""
        if self.answer(action) is not None:
            return False
        try:
            calculated(called(action, compact=self.rules.compact), compact=self.rules.compact)
        except ToolRefused:
            return False
        return True

    def is_failed_call(self, action: str) -> bool:
        """Whether an action is neither an answer nor a pass, and the calculator refuses it."""
        return bool(action) and self.answer(action) is None and not self.is_call(action)

    def answer(self, action: str) -> str | None:
        """The number that an action answers with, as the calculator writes it; None: it is no answer."""
        if self.rules.compact:
            match = _COMPACT_ANSWER.fullmatch(action)
            return match.group(1) if match else None
        if not _ANSWER.fullmatch(action.strip()):
            return None
        try:
            return str(calculate(action))
        except (ValueError, ZeroDivisionError):
            return None

    def reached_by(self, state: MathState, expression: str, result: str) -> int:
        """How many milestones a call reaches, counted up to the furthest; what was reached is not lost."""
        for place in range(len(state.problem.milestones), state.reached, -1):
            milestone = state.problem.milestones[place - 1]
            if milestone.value == result and (not milestone.calls or expression in milestone.calls):
                return place
        return state.reached

    def is_sound(self, state: MathState, action: str) -> bool:
        """Whether an action is the right answer, or a call that leads on."""
        answer = self.answer(action)
        if answer is not None:
            return answer == state.problem.answer
        try:
            expression = called(action, compact=self.rules.compact)
            result = calculated(expression, compact=self.rules.compact)
        except ToolRefused:
            return False
        return self.reached_by(state, expression, result) > state.reached

    def is_over(self, state: MathState) -> bool:
        return state.answer is not None or state.turn >= self.rules.max_turns

    def is_solved(self, state: MathState) -> bool:
        return state.answer == state.problem.answer

    def render(self) -> str:
        state = self.state
        lines = [f"{call} -> {result}" for call, result in state.history]
        return "\n".join([state.problem.text, *lines, f"answer {state.answer or '-'}, right is {state.problem.answer}"])


def _noted(state: MathState, action: str, result: str) -> MathState:
    return msgspec.structs.replace(state, history=(*state.history, (kept_text(action), kept_text(result))))


_COMPACT_ACTIONS = (
    *(f"{a}{sign}{b}" for a in "0123456789" for sign in "+-*" for b in "0123456789"),
    *(f"={digit}." for digit in "0123456789"),
)
