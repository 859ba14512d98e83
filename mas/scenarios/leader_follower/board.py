"""The board of `leader_follower`: coloured blocks on a square, and the way to the nearest of a colour."""

from collections import deque
from random import Random

import msgspec

from mas.scenarios.plan_path.grid import MOVES, Cell, manhattan, neighbour

COLOURS = "rgb"
EMPTY, FOLLOWER = ".", "@"


class Board(msgspec.Struct, frozen=True):
    """`cells` are rows from the top, each from the left: the colour of a block, or `.`."""

    size: int
    cells: str

    def at(self, cell: Cell) -> str:
        """What lies in a cell."""
        return self.cells[cell[0] * self.size + cell[1]]

    def has(self, cell: Cell) -> bool:
        """Whether the cell is on the board."""
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size

    def of(self, colours: str) -> tuple[Cell, ...]:
        """Cells of all blocks of these colours."""
        return tuple(divmod(place, self.size) for place, content in enumerate(self.cells) if content in colours)

    def with_block(self, cell: Cell, content: str) -> "Board":
        """The board with another content of one cell."""
        place = cell[0] * self.size + cell[1]
        return Board(self.size, self.cells[:place] + content + self.cells[place + 1 :])

    def distance(self, cell: Cell, colour: str) -> int:
        """Moves to the nearest block of the colour, whatever lies between; 0 on such a block."""
        return min(manhattan(cell, block) for block in self.of(colour))

    def way(self, cell: Cell, colour: str) -> str:
        """The first move of a shortest way to a block of the colour, around other blocks where that is possible."""
        others = frozenset(self.of(COLOURS.replace(colour, "")))
        return self._first_move(cell, colour, others) or self._first_move(cell, colour, frozenset()) or ""

    def _first_move(self, cell: Cell, colour: str, barred: frozenset[Cell]) -> str | None:
        """Breadth first, in the order of `MOVES`; None where no block of the colour is reached."""
        seen, queue = {cell, *barred}, deque([(cell, "")])
        while queue:
            here, first = queue.popleft()
            for move in MOVES:
                near = neighbour(here, move)
                if near in seen or not self.has(near):
                    continue
                if self.at(near) == colour:
                    return first or move
                seen.add(near)
                queue.append((near, first or move))
        return None

    def rows(self, cell: Cell) -> str:
        """The board as lines of text; `@` is the follower."""
        shown = self.with_block(cell, FOLLOWER).cells
        return "\n".join(shown[start : start + self.size] for start in range(0, len(shown), self.size))


def make_board(random: Random, size: int, blocks: int) -> tuple[Board, Cell]:
    """A board with so many blocks of each colour, and an empty cell to stand in."""
    places = random.sample(range(size * size), blocks * len(COLOURS) + 1)
    cells = [EMPTY] * (size * size)
    for number, place in enumerate(places[1:]):
        cells[place] = COLOURS[number % len(COLOURS)]
    return Board(size, "".join(cells)), divmod(places[0], size)


def make_goals(random: Random, turns: int, switch: float) -> str:
    """The goal colour of every turn; it changes to another one with probability `switch` before each."""
    goals = random.choice(COLOURS)
    while len(goals) < turns:
        others = COLOURS.replace(goals[-1], "")
        goals += random.choice(others) if random.random() < switch else goals[-1]
    return goals
