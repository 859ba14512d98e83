"""`tool_use`: reach a number with tools; what a call answers is seen from the next team turn on.

The team's action is a call, which the environment carries out, or the answer, which ends the episode. A call that is
refused spends the turn and leaves `!` behind. In tasks of the kind `store` a call changes the table, and the table must
be right at the end, too.

The own terms of `tool_use`: ToolRL's reward for whoever writes calls, its parts as terms of their own. They add up to
ToolRL's total but for its constant -3, which no comparison inside a group sees.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import CountedCall, Move, Task
from mas.core.errors import ToolRefused
from mas.core.messages import parsed_text
from mas.core.tool_call import ToolCall
from mas.scenarios.call_world import REFUSED, CallWorld
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.tool_use.tasks import (
    SHORTHAND,
    UNITS,
    Puzzle,
    Table,
    ToolRules,
    in_words,
    is_wanted,
    make,
    question,
    read_words,
    solution,
    toolbox,
    wanted_table,
)
from mas.scenarios.world import ToolRecordEnvironment, one_seat
from mas.tools import read_call, tool_score

_NUMBER = re.compile(r"-?[0-9]{1,15}")
_LONG_ANSWER = re.compile(r"=([0-9])\.?")


class ToolState(msgspec.Struct, frozen=True, omit_defaults=True):
    """`history`: (call, what came of it) by turn. `done`: how many of the wanted calls were made, in their order.
    `changed`: the table as calls have made it; empty: as it was. `calls`: see `ToolRecordEnvironment`."""

    puzzle: Puzzle
    history: tuple[tuple[str, str], ...] = ()
    done: int = 0
    turn: int = 0
    answer: int | None = None
    changed: Table = ()
    calls: tuple[CountedCall, ...] = ()

    @property
    def table(self) -> Table:
        """As it is now."""
        return self.changed or self.puzzle.table


class ToolEnvironment(CallWorld[ToolState], ToolRecordEnvironment[ToolState]):
    """A call or the answer a turn."""

    state_type: ClassVar[type[msgspec.Struct]] = ToolState

    def __init__(self, rules: ToolRules) -> None:
        views = ("planner", "caller", "summariser", "solo")
        super().__init__(one_seat("tool_use", views, rules.max_turns, ("right", "progress", "waste")))
        self.rules, self.is_compact = rules, rules.compact
        self.tool_names = toolbox(rules).names

    def initial(self, task: Task) -> ToolState:
        return ToolState(make(Random(task.seed), self.rules))

    def content_of(self, state: ToolState) -> str:
        """The question and its solution: two tasks whose tables differ where nobody looks are one."""
        values = [value for _, value in solution(state.puzzle, self.rules)]
        return f"{question(state.puzzle, self.rules)} {values}"

    def fields(self, state: ToolState, view: str) -> Mapping[str, str]:
        shown = {"question": question(state.puzzle, self.rules), "history": self._history(state)}
        if self.rules.compact or self.rules.words or view == "summariser":
            return shown
        box = toolbox(self.rules)
        tools = ", ".join(box.names) if view == "planner" else msgspec.json.encode(box.schemas()).decode()
        return shown | {"tools": tools}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self._compact_actions if self.rules.compact else None

    def result_of(self, state: ToolState, action: str) -> tuple[ToolState, str, float]:
        call = self.call(action)
        table, outcome = toolbox(self.rules).perform(state.table, call)
        wanted = solution(state.puzzle, self.rules)
        is_next = state.done < len(wanted) and is_wanted(call, wanted[state.done][0])
        changed = state.changed if table == state.table else table
        after = msgspec.structs.replace(state, done=state.done + is_next, changed=changed)
        return after, outcome, is_next / len(wanted)

    def call(self, action: str) -> ToolCall:
        """The call that an action is.

        Raises:
            ToolRefused: it is none.
        """
        if self.rules.words:
            return read_words(action)
        return SHORTHAND.expand(action) if self.rules.compact else read_call(action)

    def call_of(self, action: str) -> ToolCall | None:
        try:
            return self.call(action)
        except ToolRefused:
            return None

    def denied(self, state: ToolState, action: str, answer: str) -> tuple[ToolState, dict[str, float]]:
        later = msgspec.structs.replace(state, turn=state.turn + 1)
        shown = REFUSED if self.rules.compact else answer
        return self.noted(later, action, shown), {"waste": self.waste}

    def answer(self, action: str) -> int | None:
        """The number that an action answers with; None: it is no answer. Compact: `7`, or `=7.` in three characters."""
        if self.rules.compact:
            long = _LONG_ANSWER.fullmatch(action)
            action = long.group(1) if long else action if len(action) == 1 else ""
        return int(action) if _NUMBER.fullmatch(action.strip()) else None

    def is_solved(self, state: ToolState) -> bool:
        is_right = state.answer == solution(state.puzzle, self.rules)[-1][1]
        return is_right and state.table == wanted_table(state.puzzle, self.rules)

    def render(self) -> str:
        state, width = self.state, len(UNITS)
        table = state.table
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

    def noted(self, state: ToolState, action: str, result: str) -> ToolState:
        """What is no call is kept as `!` in compact form."""
        is_kept = not self.rules.compact or action[0] in SHORTHAND.tools
        return super().noted(state, action if is_kept else REFUSED, result)

    @cached_property
    def _compact_actions(self) -> tuple[str, ...]:
        sums = [f"{sign}{a}{b}" for sign in "+-*" for a in DIGITS for b in DIGITS]
        items = [self.rules.item(number) for number in range(self.rules.items)]
        units = [self.rules.unit(number) for number in range(len(UNITS))]
        return (*sums, *(f"t{item}{unit}" for item in items for unit in units), *DIGITS)


_SIGNS = "".join(SHORTHAND.tools)


def expert(environment: ToolEnvironment, random: Random) -> dict[str, str]:
    """The next call that is wanted, then the answer."""
    state, rules = environment.state, environment.rules
    wanted = solution(state.puzzle, rules)
    if state.done == len(wanted):
        return {"team": str(wanted[-1][1])}
    call = wanted[state.done][0]
    if rules.words:
        return {"team": in_words(call)}
    return {"team": SHORTHAND.shorten(call) if rules.compact else call.text()}


def demonstrations(random: Random, skill: float, *, rules: ToolRules) -> Iterator[tuple[str, str]]:
    """Every role's part after some of the wanted calls, in compact form: right with `skill`, by habit else.

    Habits: the planner looks up, the caller and solo call the first tool again with what the question has, the
    summariser answers 0.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        puzzle = make(random, rules)
        wanted = [(SHORTHAND.shorten(call), str(value)) for call, value in solution(puzzle, rules)]
        made = random.randint(0, len(wanted))
        asked = f"{question(puzzle, rules)};{''.join(call[0] + value for call, value in wanted[:made])}"
        if made < len(wanted):
            call = wanted[made][0]
            plan = call[0] if random.random() < 0.8 else random.choice(_SIGNS)
            # the first call once more; where that is the right one, the same tool with its first argument twice
            habit = wanted[0][0] if call != wanted[0][0] else call[0] + call[1] * 2
            yield f"P{asked}>", teacher.answer(call[0], "t", _SIGNS + "=")
            yield f"C{asked};{plan}>", teacher.answer(call, habit, DIGITS)
            yield f"S{asked}>", teacher.answer(call, habit, DIGITS)
        else:
            value = wanted[-1][1]
            yield f"P{asked}>", teacher.answer("=", "t", _SIGNS + "=")
            yield f"A{asked}>", teacher.answer(value, "0", DIGITS)
            yield f"S{asked}>", teacher.answer(f"={value}.", wanted[0][0], DIGITS)


WRITERS = ("caller", "solo")


class ToolReward:
    """`format`: the output is a call, or for `solo` an answer. `tool_name`, `tool_parameters`, `tool_values`: against
    the next call that is wanted, or none where all were made."""

    terms: tuple[str, ...] = ("format", "tool_name", "tool_parameters", "tool_values")

    def own(self, move: Move) -> Mapping[str, float]:
        if move.role not in WRITERS:
            return {}
        world = move.environment
        assert isinstance(world, ToolEnvironment)
        state = world.state
        wanted = [call for call, _ in solution(state.puzzle, world.rules)[state.done :][:1]]
        called = _called(world, move)
        if called is None:
            return dict.fromkeys(self.terms, 0.0)
        score = tool_score(called, wanted, readable=True)
        scale = 6 / score.most
        return {
            "format": score.format,
            "tool_name": scale * score.name,
            "tool_parameters": scale * score.parameters,
            "tool_values": scale * score.values,
        }


def _called(world: ToolEnvironment, move: Move) -> Sequence[ToolCall] | None:
    """The calls of an output, none in an answer of `solo`; None: it is neither, so that it is worth nothing."""
    text = parsed_text(move.output)
    if move.role == "solo" and world.answer(text) is not None:
        return ()
    try:
        return (world.call(text),)
    except ToolRefused:
        return None
