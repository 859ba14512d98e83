"""`sudoku`: fill a grid whose constraints are split over the team (after AT-GRPO's Sudoku).

The planner sees how many digits are possible in every blank, the executor which digits its row leaves, the verifier
which digits its column and block leave. The team's action is one digit a turn: the blank's name and the digit, as `b3`,
or 0 to wipe a digit that the team wrote. A digit that stands in the blank's row, column or block is illegal. A wrong
digit that is in conflict with none is written; it can be wiped, or written over.
"""

import string
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from random import Random
from typing import Annotated, ClassVar, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Move, Task
from mas.core.messages import Verdict
from mas.core.options import Options
from mas.scenarios.noisy_teacher import VERDICTS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.sudoku.puzzle import BLANK, left, make_puzzle, make_solution, size_of, units
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

NAMES = string.ascii_letters
"""Blanks are called by these in reading order."""
WIPE = "0"


class SudokuState(msgspec.Struct, frozen=True):
    """A puzzle, its solution, and what the team wrote into each blank, in reading order (`.`: nothing)."""

    puzzle: str
    solution: str
    written: str
    turn: int = 0

    @property
    def blanks(self) -> tuple[int, ...]:
        return tuple(place for place, cell in enumerate(self.puzzle) if cell == BLANK)

    @property
    def answers(self) -> str:
        """The right digit of each blank."""
        return "".join([self.solution[place] for place in self.blanks])

    @property
    def cells(self) -> str:
        """The puzzle with what was written."""
        digits = iter(self.written)
        return "".join([next(digits) if cell == BLANK else cell for cell in self.puzzle])

    def row_digits(self) -> dict[str, str]:
        """Per blank the digits that no other cell of its row has."""
        return self._digits(lambda place: units(size_of(self.puzzle))[place].row)

    def around_digits(self) -> dict[str, str]:
        """Per blank the digits that no other cell of its column or block has."""
        return self._digits(lambda place: units(size_of(self.puzzle))[place].around)

    def possible(self) -> dict[str, str]:
        """Per blank the digits that are in conflict with no other cell."""
        around = self.around_digits()
        return {
            name: "".join([digit for digit in digits if digit in around[name]])
            for name, digits in self.row_digits().items()
        }

    def actions(self) -> tuple[str, ...]:
        """All that changes the grid without a conflict."""
        found = []
        for (name, digits), now in zip(self.possible().items(), self.written, strict=True):
            found += [name + digit for digit in digits if digit != now]
            found += [name + WIPE] if now != BLANK else []
        return tuple(found)

    def sensible_blanks(self) -> str:
        """Whom a planner should name: open blanks with the fewest digits; where one has none, what may be wiped."""
        counts = {
            name: len(digits)
            for (name, digits), digit in zip(self.possible().items(), self.written, strict=True)
            if digit == BLANK
        }
        fewest = min(counts.values(), default=0)
        if fewest == 0:
            return "".join([name for name in NAMES[: len(self.written)] if name not in counts])
        return "".join([name for name, count in counts.items() if count == fewest])

    def _digits(self, of: Callable[[int], tuple[int, ...]]) -> dict[str, str]:
        cells = self.cells
        return {name: left(cells, of(place)) for name, place in zip(NAMES, self.blanks, strict=False)}


_MOST_BLANKS = {True: {4: 10, 9: 48}, False: {4: 10, 9: len(NAMES)}}
"""By `forced` and size, what is found within a fraction of a second."""


class SudokuOptions(Options):
    """The dial is `size` (rows) and `blanks`; `max_turns` None allows 2 turns per blank.

    `forced`: at every point some blank has one candidate only; otherwise the one solution may need guesses.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Literal[4, 9] = 4
    blanks: Annotated[int, Field(ge=1)] = 4
    forced: bool = True
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        most = _MOST_BLANKS[self.forced][self.size]
        if self.blanks > most:
            raise ValueError(f"blanks={self.blanks} is too many for size={self.size}: at most {most}")
        if self.max_turns is not None and self.max_turns < self.blanks:
            raise ValueError(f"max_turns={self.max_turns} is too few for blanks={self.blanks}: one is filled a turn")
        return self

    @property
    def turns(self) -> int:
        return self.max_turns or 2 * self.blanks


class SudokuEnvironment(RecordEnvironment[SudokuState]):
    """One digit a turn until the grid is right or the turns are over.

    `progress` times the change of (right - wrong digits) / blanks, so that it sums to at most `progress`; `waste` for
    a turn in which nothing was written or wiped; `solved` for the full grid, less up to half of it for being late.
    """

    history: ClassVar[tuple[str, ...]] = ("turn",)
    progress: ClassVar[float] = 1.0
    waste: ClassVar[float] = -0.2
    solved: ClassVar[float] = 1.0

    def __init__(self, rules: SudokuOptions) -> None:
        views = ("planner", "executor", "verifier", "solo")
        super().__init__(one_seat("sudoku", views, rules.turns, ("progress", "waste", "solved")))
        self.rules = rules

    def initial(self, task: Task) -> SudokuState:
        return _initial(task.seed, self.rules.size, self.rules.blanks, self.rules.forced)

    def fields(self, state: SudokuState, view: str) -> Mapping[str, str]:
        return look(state, view)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self.state.actions()

    def act(self, state: SudokuState, action: str) -> tuple[SudokuState, dict[str, float], bool]:
        after = msgspec.structs.replace(state, turn=state.turn + 1)
        if action not in state.actions():
            return after, {"waste": self.waste}, action == ""
        place, digit = NAMES.index(action[0]), BLANK if action[1] == WIPE else action[1]
        written = state.written[:place] + digit + state.written[place + 1 :]
        after = msgspec.structs.replace(after, written=written)
        terms = {"progress": self.progress * (_share(after) - _share(state))}
        if self.is_solved(after):
            terms["solved"] = self.solved * (1 - 0.5 * state.turn / self.spec.max_turns)
        return after, terms, True

    def is_solved(self, state: SudokuState) -> bool:
        return state.cells == state.solution

    def render(self) -> str:
        size = size_of(self.state.puzzle)
        names, cells = iter(NAMES), self.state.cells
        shown = [next(names) if cell == BLANK else cell for cell in self.state.puzzle]
        rows = range(0, size * size, size)
        return "\n".join(f"{''.join(shown[row : row + size])}  {cells[row : row + size]}" for row in rows)


@lru_cache(maxsize=4096)
def _initial(seed: int, size: int, blanks: int, forced: bool) -> SudokuState:
    puzzle, solution = make_puzzle(Random(seed), size, blanks, forced=forced)
    return SudokuState(puzzle, solution, BLANK * blanks)


def _share(state: SudokuState) -> float:
    """(Right - wrong) / blanks."""
    pairs = zip(state.written, state.answers, strict=True)
    return sum(0 if digit == BLANK else 1 if digit == right else -1 for digit, right in pairs) / len(state.written)


def _counts(state: SudokuState) -> str:
    """Per blank its name and how many digits are possible in it; `-` where one is written."""
    pairs = zip(state.possible().items(), state.written, strict=True)
    return " ".join(name + (str(len(digits)) if now == BLANK else "-") for (name, digits), now in pairs)


def _table(possible: Mapping[str, str], size: int) -> str:
    """Per blank its name and one place per digit: the digit, or `.` where it is taken."""
    digits = "123456789"[:size]
    rows = ("".join([digit if digit in some else "." for digit in digits]) for some in possible.values())
    return " ".join(name + row for name, row in zip(possible, rows, strict=True))


_FIELDS: Mapping[str, Callable[[SudokuState], str]] = {
    "counts": _counts,
    "written": lambda state: " ".join(name + digit for name, digit in zip(NAMES, state.written, strict=False)),
    "rows": lambda state: _table(state.row_digits(), size_of(state.puzzle)),
    "around": lambda state: _table(state.around_digits(), size_of(state.puzzle)),
}
VIEWS: Mapping[str, tuple[str, ...]] = {
    "planner": ("counts", "written"),
    "executor": ("rows",),
    "verifier": ("around",),
    "solo": ("counts", "written", "rows", "around"),
}
"""View -> the fields that it sees."""


def look(state: SudokuState, view: str) -> dict[str, str]:
    """What a view sees of a state."""
    return {field: _FIELDS[field](state) for field in VIEWS[view]}


WRONG = 0.15
"""Share of demonstrated grids with a wrong digit."""


def expert(environment: SudokuEnvironment, random: Random) -> dict[str, str]:
    """What is wrong is wiped first; then a right digit is written into any blank."""
    state = environment.state
    pairs = list(zip(NAMES, state.written, state.answers, strict=False))
    wrong = [name + WIPE for name, now, right in pairs if now not in (BLANK, right)]
    missing = [name + right for name, now, right in pairs if now == BLANK]
    return {"team": random.choice(wrong or missing)}


def proposal(state: SudokuState, plan: str, tried: str, random: Random) -> str:
    """The executor's digit for the planned blank: one that its row leaves and that was not tried."""
    if state.written[NAMES.index(plan)] != BLANK:
        return plan + WIPE
    digits = [digit for digit in state.row_digits()[plan] if digit not in tried]
    return plan + random.choice(digits or state.row_digits()[plan] or "1")


def demonstrations(random: Random, skill: float, *, size: int, blanks: int, forced: bool) -> Iterator[tuple[str, str]]:
    """Each member's task in turn: right with `skill`, by habit else (see `NoisyTeacher`)."""
    teacher = NoisyTeacher(random, skill)
    while True:
        puzzle, solution = make_puzzle(random, size, blanks, forced=forced)
        for filled in random.sample(range(blanks), min(3, blanks)):
            state = _partly(SudokuState(puzzle, solution, BLANK * blanks), filled, random)
            yield from _at(state, random, teacher)


def _partly(state: SudokuState, filled: int, random: Random) -> SudokuState:
    """So many blanks filled, now and then one of them with a wrong digit."""
    right = set(random.sample(range(len(state.written)), filled))
    written = "".join([digit if place in right else BLANK for place, digit in enumerate(state.answers)])
    state = msgspec.structs.replace(state, written=written)
    wrong = [action for action in state.actions() if action[1] not in (WIPE, state.answers[NAMES.index(action[0])])]
    if wrong and random.random() < WRONG:
        action = random.choice(wrong)
        place = NAMES.index(action[0])
        state = msgspec.structs.replace(state, written=written[:place] + action[1] + written[place + 1 :])
    return state


def _at(state: SudokuState, random: Random, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    size, names = size_of(state.puzzle), NAMES[: len(state.written)]
    digits = "123456789"[:size]
    counts, rows, around = (look(state, "solo")[field] for field in ("counts", "rows", "around"))
    plan = random.choice(state.sensible_blanks() or names)
    first = proposal(state, plan, "", random)
    second = proposal(state, plan, first[1], random)
    judged = random.choice(names) + random.choice(digits)
    fits = judged[1] in state.around_digits()[judged[0]]
    yield f"P{counts}>", teacher.answer(plan, names[0], names)
    yield f"E{rows};{plan}>", teacher.answer(first, plan + "1", names + digits)
    if second != first:
        yield f"E{rows};{plan}{first}>", teacher.answer(second, first, names + digits)
    yield f"V{around};{judged}>", teacher.answer("y" if fits else "n", "y", VERDICTS)
    alone = next((move for move in state.actions() if move[0] == plan and move[1] != WIPE), plan + WIPE)
    yield f"S{counts};{rows};{around}>", teacher.answer(alone, names[0] + "1", names + digits)


FAULT = -0.2


class SudokuReward:
    """`narrow`: the planned blank is one with the fewest digits. `valid`: the digit is for that blank, its row
    leaves it, and it was not just sent back. `verdict`: accepted exactly when column and block leave it."""

    terms: tuple[str, ...] = ("narrow", "valid", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, SudokuEnvironment)
        state = move.environment.state
        if move.role == "planner":
            said = move.output.content
            return {"narrow": 0.0 if len(said) == 1 and said in state.sensible_blanks() else FAULT}
        if move.role == "executor":
            return {"valid": 0.0 if _is_valid(state, move) else FAULT}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            proposal = move.before.get("executor")
            fits = proposal is not None and _is_left(state, proposal.content, state.around_digits())
            right = move.output.accept == fits
            return {"verdict": 0.0 if right else -1.0}
        return {}


def _is_valid(state: SudokuState, move: Move) -> bool:
    said, plan, rejected = move.output.content, move.before.get("planner"), move.before.get("executor")
    if plan is None or said[:1] != plan.content or (rejected is not None and rejected.content == said):
        return False
    return _is_left(state, said, state.row_digits())


def _is_left(state: SudokuState, action: str, table: Mapping[str, str]) -> bool:
    """Whether a table of digits per blank has the action's digit, or there is something that it wipes."""
    name, digit = action[:1], action[1:]
    if name not in table or len(digit) != 1:
        return False
    return state.written[NAMES.index(name)] != BLANK if digit == WIPE else digit in table[name]


def build(options: SudokuOptions) -> FolderScenario:
    """The scenario with these options."""
    size, blanks, forced = options.size, options.blanks, options.forced
    return FolderScenario(
        __file__,
        options,
        partial(SudokuEnvironment, options),
        partial(_content, size=size, blanks=blanks, forced=forced),
        partial(demonstrations, size=size, blanks=blanks, forced=forced),
        unkeyed=(),
        reward=SudokuReward(),
        expert=expert,
    )


_MOST_ALIKE = 10
"""Blanks: up to so many, puzzles of different grids can have the same first view."""


def _content(random: Random, size: int, blanks: int, forced: bool) -> str:
    """What splits are made by: the team's whole first view, or with many blanks the full grid, which is quicker to
    draw."""
    if blanks > _MOST_ALIKE:
        return make_solution(random, size)
    puzzle, solution = make_puzzle(random, size, blanks, forced=forced)
    return f"{look(SudokuState(puzzle, solution, BLANK * blanks), 'solo')}"


ENTRY = ScenarioEntry(
    SudokuOptions,
    build,
    "cooperative planning",
    {"small": {}, "medium": {"size": 9, "blanks": 20}, "large": {"size": 9, "blanks": 45, "forced": False}},
)
