"""A solver: the fewest pushes, found by A* over the positions of the boxes."""

from functools import lru_cache
from heapq import heappop, heappush
from itertools import count

from mas.scenarios.plan_path.grid import Cell
from mas.scenarios.sokoban.level import Boxes, Level

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
