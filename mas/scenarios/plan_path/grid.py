"""Grid worlds: cells, walls, moves and shortest paths."""

from collections import deque
from random import Random

import msgspec

MOVES: dict[str, tuple[int, int]] = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
WAYS = {"up": "U", "down": "D", "left": "L", "right": "R"}
"""Moves as they are called in words."""
BACK = {"U": "D", "D": "U", "L": "R", "R": "L"}
Cell = tuple[int, int]


class PathGrid(msgspec.Struct, frozen=True):
    """A square of `size` x `size` cells, some of them walls."""

    size: int
    walls: tuple[Cell, ...] = ()

    def is_free(self, cell: Cell) -> bool:
        """Inside and not a wall."""
        return 0 <= cell[0] < self.size and 0 <= cell[1] < self.size and cell not in self.walls

    def distances(self, goal: Cell) -> dict[Cell, int]:
        """Shortest path length to the goal from every cell that reaches it (breadth first)."""
        found, queue = {goal: 0}, deque([goal])
        while queue:
            cell = queue.popleft()
            for move in MOVES:
                near = neighbour(cell, move)
                if self.is_free(near) and near not in found:
                    found[near] = found[cell] + 1
                    queue.append(near)
        return found


def neighbour(cell: Cell, move: str) -> Cell:
    """The cell one move away."""
    rows, columns = MOVES[move]
    return cell[0] + rows, cell[1] + columns


def manhattan(a: Cell, b: Cell) -> int:
    """Distance without walls."""
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def make_grid(random: Random, size: int, walls: int) -> tuple[PathGrid, Cell, Cell]:
    """A grid with so many walls, a start and a goal at least two moves away that can be reached."""
    cells = [(row, column) for row in range(size) for column in range(size)]
    while True:
        grid = PathGrid(size, tuple(sorted(random.sample(cells, walls))))
        start, goal = random.sample([cell for cell in cells if cell not in grid.walls], 2)
        if manhattan(start, goal) >= 2 and start in grid.distances(goal):
            return grid, start, goal
