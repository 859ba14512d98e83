"""Sokoban levels: how boxes move, how far they are from their targets, and levels made by pulling boxes off them."""

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, permutations
from random import Random

import msgspec

from mas.scenarios.plan_path import BACK, MOVES, Cell, PathGrid, neighbour

Boxes = tuple[Cell, ...]
"""Cells of the boxes in order: boxes are all alike."""
DEAD = 1_000_000
"""More pushes than any level needs: what a box needs that cannot reach a target."""


class Level(msgspec.Struct, frozen=True):
    """A grid with as many targets as boxes, the boxes, and the player's cell."""

    grid: PathGrid
    targets: tuple[Cell, ...]
    boxes: Boxes
    cell: Cell

    def is_solved(self) -> bool:
        """Whether every box stands on a target."""
        return self.boxes == self.targets

    def after(self, move: str) -> "Level | None":
        """The level after a step, which pushes a box that stands in the way; None: it is blocked."""
        cell = neighbour(self.cell, move)
        if not self.grid.is_free(cell):
            return None
        if cell not in self.boxes:
            return self._with(self.boxes, cell)
        ahead = neighbour(cell, move)
        if not self.grid.is_free(ahead) or ahead in self.boxes:
            return None
        return self._with(_moved(self.boxes, cell, ahead), cell)

    def walks(self) -> dict[Cell, str]:
        """The shortest walk to every cell that can be reached without a push."""
        found, queue = {self.cell: ""}, deque([self.cell])
        while queue:
            cell = queue.popleft()
            for move in MOVES:
                near = neighbour(cell, move)
                if near not in found and near not in self.boxes and self.grid.is_free(near):
                    found[near] = found[cell] + move
                    queue.append(near)
        return found

    def pushes_left(self) -> int | None:
        """Pushes that are needed if boxes were no obstacles to each other; None: a box is lost, whatever follows."""
        tables = _tables(self.grid, self.targets)
        orders = permutations(self.boxes)
        least = min(sum(table.get(box, DEAD) for table, box in zip(tables, order, strict=True)) for order in orders)
        return None if least >= DEAD else least

    def pushes(self) -> Iterator[tuple[Cell, str, "Level"]]:
        """(where the player must stand, move, level after it) of every push, even where nobody can get there."""
        for box in self.boxes:
            for move in MOVES:
                stand = neighbour(box, BACK[move])
                if self.grid.is_free(stand) and stand not in self.boxes:
                    after = self._with(self.boxes, stand).after(move)
                    if after is not None:
                        yield stand, move, after

    def _with(self, boxes: Boxes, cell: Cell) -> "Level":
        return Level(self.grid, self.targets, boxes, cell)


def _moved(boxes: Boxes, old: Cell, new: Cell) -> Boxes:
    """A few moves on: the team's or random ones, none of which loses a box or solves the level."""
    return tuple(sorted([new if box == old else box for box in boxes]))


@lru_cache(maxsize=65_536)
def _tables(grid: PathGrid, targets: tuple[Cell, ...]) -> tuple[dict[Cell, int], ...]:
    return tuple(push_distances(grid, target) for target in targets)


def push_distances(grid: PathGrid, target: Cell) -> dict[Cell, int]:
    """Pushes that a lone box needs from every cell to a target; cells that are left out are dead for it."""
    found, queue = {target: 0}, deque([target])
    while queue:
        cell = queue.popleft()
        for move in MOVES:
            box = neighbour(cell, BACK[move])
            if box not in found and grid.is_free(box) and grid.is_free(neighbour(box, BACK[move])):
                found[box] = found[cell] + 1
                queue.append(box)
    return found


def make_level(random: Random, size: int, boxes: int, walls: int, pulls: int) -> Level:
    """A solvable level: boxes are pulled off their targets so many times, away from them where that is possible."""
    cells = [(row, column) for row in range(size) for column in range(size)]
    while True:
        grid = PathGrid(size, tuple(sorted(random.sample(cells, walls))))
        free = [cell for cell in cells if cell not in grid.walls]
        if len(grid.distances(free[0])) < len(free):
            continue
        *targets, cell = random.sample(free, boxes + 1)
        solved = Level(grid, tuple(sorted(targets)), tuple(sorted(targets)), cell)
        level = _pulled(random, solved, pulls)
        if level is not None and not set(level.boxes) & set(level.targets):
            return Level(grid, level.targets, level.boxes, random.choice(sorted(level.walks())))


def _pulled(random: Random, level: Level, pulls: int) -> Level | None:
    for _ in range(pulls):
        ways = list(_pulls(level))
        if not ways:
            return None
        now = level.pushes_left() or 0
        away = [one for one in ways if (one.pushes_left() or 0) > now]
        level = random.choice(away or ways)
    return level


def _pulls(level: Level) -> Iterator[Level]:
    reached = level.walks()
    for box in level.boxes:
        for move in MOVES:
            stand = neighbour(box, move)
            back = neighbour(stand, move)
            if stand in reached and level.grid.is_free(back) and back not in level.boxes:
                yield Level(level.grid, level.targets, _moved(level.boxes, box, stand), back)


POSITIONS = 20_000
"""Positions that are looked at before the solver gives up."""


def solve(level: Level, positions: int = POSITIONS) -> str | None:
    """Moves that solve a level with the fewest pushes, the walks between them as short as they can be.

    What remains is estimated as the number of pushes if boxes were no obstacles to each other, which is never more
    than it is: the first solution found is one with the fewest pushes.

    Args:
        positions: to look at; None is returned where they do not suffice, as where there is no solution.
    """
    number = count()
    queue = [(level.pushes_left() or 0, next(number), "", 0, level)]
    seen: set[tuple[Boxes, Cell]] = set()
    while queue and len(seen) < positions:
        _, _, moves, pushed, now = heappop(queue)
        if now.is_solved():
            return moves
        walks = now.walks()
        key = now.boxes, min(walks)
        if key in seen:
            continue
        seen.add(key)
        for stand, move, after in now.pushes():
            left = after.pushes_left()
            if stand in walks and left is not None:
                entry = (pushed + 1 + left, next(number), moves + walks[stand] + move, pushed + 1, after)
                heappush(queue, entry)
    return None


@lru_cache(maxsize=256)
def route(level: Level) -> dict[Level, str]:
    """The next move at every level on the way of `solve`; empty where it finds none."""
    found: dict[Level, str] = {}
    for move in solve(level) or "":
        found[level] = move
        after = level.after(move)
        assert after is not None
        level = after
    return found
