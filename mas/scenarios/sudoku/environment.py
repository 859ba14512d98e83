"""`sudoku`: fill a grid whose constraints are split over the team (after AT-GRPO's Sudoku).

The planner sees how many digits are possible in every blank, the executor which digits its row leaves, the verifier
which digits its column and block leave. The team's action is one digit a turn: the blank's name and the digit, as `b3`,
or 0 to wipe a digit that the team wrote. A digit that stands in the blank's row, column or block is illegal. A wrong
digit that is in conflict with none is written; it can be wiped, or written over.
"""

import string
from collections.abc import Callable, Mapping
from functools import lru_cache
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.sudoku.puzzle import BLANK, left, make_puzzle, size_of, units
from mas.scenarios.world import RecordEnvironment

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
        """Places of the blanks."""
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


class SudokuRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial: size, blanks, whether guesses are never needed, turns allowed, and what the environment pays.

    `progress` times the change of (right - wrong digits) / blanks, so that it sums to at most `progress`; `waste` for
    a turn in which nothing was written or wiped; `solved` for the full grid, less up to half of it for being late.
    """

    size: int = 4
    blanks: int = 4
    forced: bool = True
    max_turns: int = 8
    progress: float = 1.0
    waste: float = -0.2
    solved: float = 1.0


class SudokuEnvironment(RecordEnvironment[SudokuState]):
    """One digit a turn until the grid is right or `max_turns`."""

    state_type: ClassVar[type[msgspec.Struct]] = SudokuState
    history: ClassVar[tuple[str, ...]] = ("turn",)

    def __init__(self, rules: SudokuRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="sudoku",
                seats=("team",),
                views=("planner", "executor", "verifier", "solo"),
                max_turns=rules.max_turns,
                terms=("progress", "waste", "solved"),
            )
        )
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
            return after, {"waste": self.rules.waste}, action == ""
        place, digit = NAMES.index(action[0]), BLANK if action[1] == WIPE else action[1]
        written = state.written[:place] + digit + state.written[place + 1 :]
        after = msgspec.structs.replace(after, written=written)
        terms = {"progress": self.rules.progress * (_share(after) - _share(state))}
        if self.is_solved(after):
            terms["solved"] = self.rules.solved * (1 - 0.5 * state.turn / self.rules.max_turns)
        return after, terms, True

    def is_over(self, state: SudokuState) -> bool:
        return self.is_solved(state) or state.turn >= self.rules.max_turns

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


def _written(state: SudokuState) -> str:
    return " ".join(name + digit for name, digit in zip(NAMES, state.written, strict=False))


def _table(possible: Mapping[str, str], size: int) -> str:
    """Per blank its name and one place per digit: the digit, or `.` where it is taken."""
    digits = "123456789"[:size]
    rows = ("".join([digit if digit in some else "." for digit in digits]) for some in possible.values())
    return " ".join(name + row for name, row in zip(possible, rows, strict=True))


_FIELDS: Mapping[str, Callable[[SudokuState], str]] = {
    "counts": _counts,
    "written": _written,
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
