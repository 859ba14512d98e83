"""`two_hop`: answer f(f(x)) from a table of f, with a base that knows only the one hop f(x)."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

from mas.core.environment import Task
from mas.core.options import Options
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld, give_right_answer

SYMBOLS = "abcdef"


class TwoHopState(msgspec.Struct, frozen=True):
    """`table[i]` is f of the i-th symbol; `x` is where to start.

    `answer` is empty after a pass and after what was not legal.
    """

    x: str
    table: str
    answer: str | None = None

    def hop(self, symbol: str) -> str:
        """f(symbol)."""
        return self.table[SYMBOLS.index(symbol)]


def make(random: Random) -> TwoHopState:
    """A random f whose path x, f(x), f(f(x)) visits three different symbols: neither x nor f(x) is the answer."""
    while True:
        state = TwoHopState(random.choice(SYMBOLS), "".join(random.choices(SYMBOLS, k=len(SYMBOLS))))
        first = state.hop(state.x)
        if len({state.x, first, state.hop(first)}) == 3:
            return state


def lookup(table: str) -> str:
    """The table in words that can be read without counting."""
    return ", ".join(f"f({symbol}) = {value}" for symbol, value in zip(SYMBOLS, table, strict=True))


class TwoHopEnvironment(QuestionWorld[TwoHopState]):
    """One team turn: the team's action is a symbol. All members see the table; only the planner sees x."""

    def __init__(self) -> None:
        super().__init__("two_hop", ("planner", "executor", "solo", "first", "second"))

    def initial(self, task: Task) -> TwoHopState:
        return make(Random(task.seed))

    def content_of(self, state: TwoHopState) -> str:
        return f"{state.x}{state.table}"

    def fields(self, state: TwoHopState, view: str) -> Mapping[str, str]:
        shown = {"table": state.table, "lookup": lookup(state.table)}
        return shown if view == "executor" else shown | {"x": state.x}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(SYMBOLS)

    def is_solved(self, state: TwoHopState) -> bool:
        return state.answer == state.hop(state.hop(state.x))

    def right_answer(self) -> str:
        """f(f(x))."""
        return self.state.hop(self.state.hop(self.state.x))

    def render(self) -> str:
        state = self.state
        return f"{lookup(state.table)}; asked f(f({state.x})); answer {state.answer or '-'}"


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """One hop with `skill`, the habit is to echo the question: in the format that every role of every team shares."""
    teacher = NoisyTeacher(random, skill)
    while True:
        table = "".join(random.choices(SYMBOLS, k=len(SYMBOLS)))
        at = random.randrange(len(SYMBOLS))
        yield f"{random.choice('PES')}{table};{SYMBOLS[at]}>", teacher.answer(table[at], SYMBOLS[at], SYMBOLS)


class TwoHopOptions(Options):
    """`skill`: share of right answers of the noisy teacher that the tiny base learns from last."""

    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: TwoHopOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__, options, TwoHopEnvironment, demonstrate=demonstrations, unkeyed=(), expert=give_right_answer
    )


ENTRY = ScenarioEntry(TwoHopOptions, build, "communication")
