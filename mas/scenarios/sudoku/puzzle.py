"""Sudoku grids as text: which digits a cell may have, a solver, and puzzles with exactly one solution.

A grid is its cells in reading order, `.` where one is blank.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import islice
from math import isqrt
from random import Random
from typing import NamedTuple

BLANK = "."
SIZES = (4, 9)


class Units(NamedTuple):
    """The cells that share the row of one cell, and those that share its column or block; itself left out."""

    row: tuple[int, ...]
    around: tuple[int, ...]

    @property
    def peers(self) -> tuple[int, ...]:
        """All of them; some are in both."""
        return self.row + self.around


@cache
def units(size: int) -> tuple[Units, ...]:
    """The units of every cell of a grid with so many rows."""
    side = isqrt(size)
    places = [(row, column) for row in range(size) for column in range(size)]

    def of(row: int, column: int) -> Units:
        others = [(place, down, right) for place, (down, right) in enumerate(places) if (down, right) != (row, column)]
        block = (row // side, column // side)
        same_row = tuple(place for place, down, _ in others if down == row)
        around = tuple(
            place for place, down, right in others if right == column or (down // side, right // side) == block
        )
        return Units(same_row, around)

    return tuple(of(row, column) for row, column in places)


def size_of(cells: str) -> int:
    """Rows of a grid."""
    return isqrt(len(cells))


def left(cells: str, places: Iterable[int]) -> str:
    """The digits, in order, that none of these cells has."""
    taken = {cells[place] for place in places}
    return "".join([digit for digit in "123456789"[: size_of(cells)] if digit not in taken])


def candidates(cells: str, place: int) -> str:
    """The digits that a cell may have: no other cell of its row, column or block has them."""
    return left(cells, units(size_of(cells))[place].peers)


def write(cells: str, place: int, digit: str) -> str:
    """The grid with another digit in one cell."""
    return cells[:place] + digit + cells[place + 1 :]


def fill_forced(cells: str) -> str:
    """The grid after every blank that had one candidate left was filled, as long as there was one."""
    return _propagated(cells)[0]


def solutions(cells: str, random: Random | None = None) -> Iterator[str]:
    """Every way to fill the blanks: what is forced first, then guesses at the blank with the fewest candidates.

    Args:
        random: draws the order of guesses; None: digits in order.
    """
    cells, open_ones = _propagated(cells)
    if not open_ones:
        yield cells
        return
    narrowest = min(open_ones, key=lambda place: len(open_ones[place]))
    digits = sorted(open_ones[narrowest])
    if random is not None:
        random.shuffle(digits)
    for digit in digits:
        yield from solutions(write(cells, narrowest, digit), random)


def _propagated(cells: str) -> tuple[str, dict[int, set[str]]]:
    """The grid with all that is forced filled in, and the candidates of the blanks that stay."""
    around, full = units(size_of(cells)), list(cells)
    open_ones = {place: set(candidates(cells, place)) for place, cell in enumerate(cells) if cell == BLANK}
    forced = [place for place, digits in open_ones.items() if len(digits) == 1]
    while forced:
        place = forced.pop()
        if not open_ones[place]:
            continue
        full[place] = open_ones.pop(place).pop()
        for peer in around[place].peers:
            if full[place] in open_ones.get(peer, ()):
                open_ones[peer].discard(full[place])
                forced += [peer] if len(open_ones[peer]) == 1 else []
    return "".join(full), open_ones


def is_unique(cells: str) -> bool:
    """Whether there is exactly one solution."""
    return len(list(islice(solutions(cells), 2))) == 1


def make_solution(random: Random, size: int) -> str:
    """A full grid."""
    return next(solutions(BLANK * (size * size), random))


def make_puzzle(random: Random, size: int, blanks: int, *, forced: bool) -> tuple[str, str]:
    """A puzzle with so many blanks, and its solution, which is the first thing that is drawn.

    Args:
        forced: at every point some blank has one candidate only; otherwise the one solution may need guesses.
    """
    solution = make_solution(random, size)
    while True:
        puzzle, taken = solution, 0
        for place in random.sample(range(len(solution)), len(solution)):
            fewer = write(puzzle, place, BLANK)
            if fill_forced(fewer) == solution if forced else is_unique(fewer):
                puzzle, taken = fewer, taken + 1
            if taken == blanks:
                return puzzle, solution
