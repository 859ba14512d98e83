"""`relay`: the planner sees the goal key, the executor a table; neither can answer alone."""

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

from mas.core.environment import Task
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, QuestionWorld, Style, give_right_answer

KEYS = "ABCD"
SIGNALS = "abcd"
COLOURS = ("red", "blue", "green", "white")
"""What the keys are called in words."""


class RelayState(msgspec.Struct, frozen=True):
    """`table[i]` is the digit of key i; `answer` is empty after a pass and after what was not legal."""

    goal: int
    table: str
    answer: str | None = None


def make(random: Random) -> RelayState:
    """A goal and four different digits."""
    return RelayState(random.randrange(len(KEYS)), "".join(random.sample(DIGITS, len(KEYS))))


class RelayEnvironment(QuestionWorld[RelayState]):
    """One team turn: the team's action is a digit. Without a message the best guess is right one time in four."""

    def __init__(self, style: Style = "letters") -> None:
        self._style = style
        super().__init__("relay", ("planner", "executor", "solo"))

    def initial(self, task: Task) -> RelayState:
        return make(Random(task.seed))

    def content_of(self, state: RelayState) -> str:
        return f"{state.goal}{state.table}"

    def fields(self, state: RelayState, view: str) -> Mapping[str, str]:
        goal, table = {"goal": KEYS[state.goal]}, {"table": state.table}
        if self._style == "words":
            row = ", ".join(f"{name} {digit}" for name, digit in zip(COLOURS, state.table, strict=True))
            goal, table = {"goal": COLOURS[state.goal]}, {"table": row}
        return {"planner": goal, "executor": table, "solo": goal | table}[view]

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(self.state.table)

    def is_answer(self, state: RelayState, action: str) -> bool:
        return action in tuple(state.table)

    def is_solved(self, state: RelayState) -> bool:
        return state.answer == state.table[state.goal]

    def right_answer(self) -> str:
        """The digit of the goal key."""
        return self.state.table[self.state.goal]

    def render(self) -> str:
        state = self.state
        pairs = ", ".join(f"{key}={digit}" for key, digit in zip(KEYS, state.table, strict=True))
        return f"goal {KEYS[state.goal]}; table {pairs}; answer {state.answer or '-'}"


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """The executor looks up a signal with `skill`, its habit is the first digit; the planner signals at random: what a
    signal means is left to be learned. The solo agent looks up the key itself."""
    teacher = NoisyTeacher(random, skill)
    while True:
        table, at = make(random).table, random.randrange(len(KEYS))
        yield f"P{random.choice(KEYS)}>", random.choice(SIGNALS)
        yield f"E{table};{SIGNALS[at]}>", teacher.answer(table[at], table[0], table)
        yield f"S{table};{KEYS[at]}>", teacher.answer(table[at], table[0], table)


class RelayOptions(Options):
    """`style`: keys and messages are letters, which the tiny base can learn, or colours, for models that chat. `skill`:
    share of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RelayOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(RelayEnvironment, options.style),
        demonstrate=demonstrations,
        inner="words" if options.style == "words" else "",
        unkeyed=("style",),
        expert=give_right_answer,
    )


ENTRY = ScenarioEntry(RelayOptions, build, "communication")
