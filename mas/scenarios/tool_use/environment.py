"""`tool_use`: reach a number with tools; what a call answers is seen from the next team turn on.

The team's action is a call, which the environment carries out, or the answer, which ends the episode. A call that is
refused spends the turn and leaves `!` behind.
"""

import re
from collections.abc import Mapping
from functools import cached_property
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.errors import ToolRefused
from mas.scenarios.tool_use.tasks import (
    SHORTHAND,
    UNITS,
    Puzzle,
    ToolRules,
    is_wanted,
    make,
    question,
    read_words,
    solution,
    toolbox,
)
from mas.scenarios.world import RecordEnvironment, kept_text
from mas.tools import ToolCall, read_call

_NUMBER = re.compile(r"-?[0-9]{1,15}")
_LONG_ANSWER = re.compile(r"=([0-9])\.?")
REFUSED = "!"


class ToolState(msgspec.Struct, frozen=True):
    """`history`: (call, what came of it) by turn. `done`: how many of the wanted calls were made, in their order."""

    puzzle: Puzzle
    history: tuple[tuple[str, str], ...] = ()
    done: int = 0
    turn: int = 0
    answer: int | None = None


class ToolEnvironment(RecordEnvironment[ToolState]):
    """A call or the answer a turn."""

    state_type: ClassVar[type[msgspec.Struct]] = ToolState
    history: ClassVar[tuple[str, ...]] = ("history", "turn")
    progress: ClassVar[float] = 0.5
    waste: ClassVar[float] = -0.1

    def __init__(self, rules: ToolRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="tool_use",
                seats=("team",),
                views=("planner", "caller", "summariser", "solo"),
                max_turns=rules.max_turns,
                terms=("right", "progress", "waste"),
            )
        )
        self.rules = rules

    def initial(self, task: Task) -> ToolState:
        return ToolState(make(Random(task.seed), self.rules))

    def fields(self, state: ToolState, view: str) -> Mapping[str, str]:
        shown = {"question": question(state.puzzle, self.rules), "history": self._history(state)}
        if self.rules.compact or self.rules.words or view == "summariser":
            return shown
        box = toolbox(state.puzzle, self.rules)
        tools = ", ".join(box.names) if view == "planner" else msgspec.json.encode(box.schemas()).decode()
        return shown | {"tools": tools}

    def standing(self, state: ToolState) -> Mapping[str, object]:
        """What is known, in whatever order it was asked."""
        return {**super().standing(state), "known": sorted(set(state.history))}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self._compact_actions if self.rules.compact else None

    def act(self, state: ToolState, action: str) -> tuple[ToolState, dict[str, float], bool]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        answer = self.answer(action)
        if answer is not None:
            after = msgspec.structs.replace(later, answer=answer)
            return after, {"right": float(self.is_solved(after))}, True
        if not action:
            return later, {"waste": self.waste}, True
        try:
            call = self.call(action)
            outcome = toolbox(state.puzzle, self.rules).perform(call)
        except ToolRefused as error:
            return self._noted(later, action, self._refusal(error)), {"waste": self.waste}, False
        after = self._noted(later, action, outcome)
        wanted = solution(state.puzzle, self.rules)
        if state.done < len(wanted) and is_wanted(call, wanted[state.done][0]):
            gain = self.progress / len(wanted)
            return msgspec.structs.replace(after, done=state.done + 1), {"progress": gain}, True
        return after, {"waste": self.waste}, True

    def call(self, action: str) -> ToolCall:
        """The call that an action is.

        Raises:
            ToolRefused: it is none.
        """
        if self.rules.words:
            return read_words(action)
        return SHORTHAND.expand(action) if self.rules.compact else read_call(action)

    def is_call(self, action: str) -> bool:
        """Whether an action is a call that the toolbox takes; an answer is none."""
        try:
            toolbox(self.state.puzzle, self.rules).perform(self.call(action))
        except ToolRefused:
            return False
        return True

    def is_failed_call(self, action: str) -> bool:
        """Whether an action is neither an answer nor a pass, and the toolbox refuses it."""
        return bool(action) and self.answer(action) is None and not self.is_call(action)

    def answer(self, action: str) -> int | None:
        """The number that an action answers with; None: it is no answer. Compact: `7`, or `=7.` in three characters."""
        if self.rules.compact:
            long = _LONG_ANSWER.fullmatch(action)
            action = long.group(1) if long else action if len(action) == 1 else ""
        return int(action) if _NUMBER.fullmatch(action.strip()) else None

    def is_over(self, state: ToolState) -> bool:
        return state.answer is not None or state.turn >= self.rules.max_turns

    def is_solved(self, state: ToolState) -> bool:
        return state.answer == solution(state.puzzle, self.rules)[-1][1]

    def render(self) -> str:
        state, width = self.state, len(UNITS)
        table = state.puzzle.table
        rows = [f"{self.rules.item(at)}: {table[at * width : (at + 1) * width]}" for at in range(self.rules.items)]
        calls = [f"{call} -> {outcome}" for call, outcome in state.history]
        answer = "-" if state.answer is None else str(state.answer)
        return "\n".join([question(state.puzzle, self.rules), *rows, *calls, f"answer {answer}"])

    def _history(self, state: ToolState) -> str:
        if self.rules.compact:
            return "".join(call[0] + outcome for call, outcome in state.history)
        if self.rules.words:
            return "; ".join(f"{call} = {outcome}" for call, outcome in state.history) or "nothing"
        return "\n".join(f"{call} -> {outcome}" for call, outcome in state.history) or "nothing was called yet"

    def _refusal(self, error: ToolRefused) -> str:
        return REFUSED if self.rules.compact else f"{REFUSED} {error}"

    def _noted(self, state: ToolState, action: str, outcome: str) -> ToolState:
        """The state with one more line of history; what is no call is kept as `!` in compact form."""
        shown = action if not self.rules.compact or action[0] in SHORTHAND.tools else REFUSED
        return msgspec.structs.replace(state, history=(*state.history, (kept_text(shown), kept_text(outcome))))

    @cached_property
    def _compact_actions(self) -> tuple[str, ...]:
        digits = "0123456789"
        sums = [f"{sign}{a}{b}" for sign in "+-*" for a in digits for b in digits]
        items = [self.rules.item(number) for number in range(self.rules.items)]
        units = [self.rules.unit(number) for number in range(len(UNITS))]
        return (*sums, *(f"t{item}{unit}" for item in items for unit in units), *digits)
