"""`plan_path`: find the way through a grid whose facts are split over the team (after AT-GRPO's Plan-Path).

The planner knows the goal, the executor where it stands, the verifier and the feedback agent what surrounds it.
The team's action is one move a turn: U, D, L or R; a bump into a wall or the border, or no move, wastes the turn, and
the team forgets where it was before: what its members see changes, so that a greedy team is not stuck for good.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar, Literal

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.plan_path.grid import MOVES, WAYS, Cell, PathGrid, make_grid, manhattan, neighbour
from mas.scenarios.world import RecordEnvironment

OPEN, VISITED, BLOCKED = ".", "o", "#"
Style = Literal["letters", "words"]


class PathState(msgspec.Struct, frozen=True):
    """Where the team stands. `last` is the last move made, `-` before the first and after a wasted turn."""

    grid: PathGrid
    goal: Cell
    cell: Cell
    visited: tuple[Cell, ...]
    last: str = "-"
    turn: int = 0

    def around(self) -> str:
        """What lies U, D, L and R: open, visited or blocked."""
        return "".join(self._look(neighbour(self.cell, move)) for move in MOVES)

    def is_sensible(self, move: str) -> bool:
        """A move to an open cell; to a visited one only where nothing else is open. No map is needed to tell."""
        if move not in MOVES:
            return False
        around = dict(zip(MOVES, self.around(), strict=True))
        return around[move] == OPEN or (around[move] == VISITED and OPEN not in around.values())

    def _look(self, cell: Cell) -> str:
        if not self.grid.is_free(cell):
            return BLOCKED
        return VISITED if cell in self.visited else OPEN


class PathRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial: size, walls, turns allowed, and what the environment pays.

    `progress` per cell of distance gained (and taken back when lost, so that its sum is bounded by the start
    distance), `waste` for a turn without a move, `goal` for arriving, less up to half of it for being late.
    `oracle` measures distance along the shortest path; otherwise as if there were no walls.
    """

    size: int = 4
    walls: int = 3
    max_turns: int = 12
    progress: float = 0.25
    waste: float = -0.4
    goal: float = 1.0
    oracle: bool = False


class PathEnvironment(RecordEnvironment[PathState]):
    """One move a turn until the goal or `max_turns`. In words moves are up, down, left and right, the planner sees how
    far the goal is in which directions, and the executor which ways are open."""

    state_type: ClassVar[type[msgspec.Struct]] = PathState
    history: ClassVar[tuple[str, ...]] = ("visited", "last", "turn")

    def __init__(self, rules: PathRules, style: Style = "letters") -> None:
        super().__init__(
            EnvironmentSpec(
                name="plan_path",
                seats=("team",),
                views=("planner", "executor", "verifier", "feedback", "solo"),
                max_turns=rules.max_turns,
                terms=("progress", "waste", "goal"),
            )
        )
        self.rules = rules
        self.style: Style = style

    def initial(self, task: Task) -> PathState:
        grid, start, goal = make_grid(Random(task.seed), self.rules.size, self.rules.walls)
        return PathState(grid, goal, start, (start,))

    def fields(self, state: PathState, view: str) -> Mapping[str, str]:
        if self.style == "words":
            return _in_words(state, view)
        goal, cell = {"goal": _name(state.goal)}, {"cell": _name(state.cell), "last": state.last}
        around = {"around": state.around()}
        views = {"planner": goal, "executor": cell, "verifier": around, "feedback": around}
        return views.get(view, goal | cell | around)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        names = WAYS if self.style == "words" else MOVES
        return tuple(name for name, seen in zip(names, self.state.around(), strict=True) if seen != BLOCKED)

    def move(self, action: str) -> str:
        """The move that an action is: U, D, L or R; empty: it is none."""
        return WAYS.get(action, "") if self.style == "words" else action if action in MOVES else ""

    def act(self, state: PathState, action: str) -> tuple[PathState, dict[str, float], bool]:
        move = self.move(action)
        if not move or not state.grid.is_free(neighbour(state.cell, move)):
            lost = msgspec.structs.replace(state, visited=(state.cell,), last="-", turn=state.turn + 1)
            return lost, {"waste": self.rules.waste}, action == ""
        cell = neighbour(state.cell, move)
        after = msgspec.structs.replace(
            state, cell=cell, visited=(*state.visited, cell), last=move, turn=state.turn + 1
        )
        terms = {"progress": self.rules.progress * (self._distance(state) - self._distance(after))}
        if cell == state.goal:
            terms["goal"] = self.rules.goal * (1 - 0.5 * state.turn / self.rules.max_turns)
        return after, terms, True

    def is_over(self, state: PathState) -> bool:
        return self.is_solved(state) or state.turn >= self.rules.max_turns

    def is_solved(self, state: PathState) -> bool:
        return state.cell == state.goal

    def render(self) -> str:
        state = self.state
        marks = dict.fromkeys(state.visited, VISITED) | dict.fromkeys(state.grid.walls, BLOCKED)
        marks |= {state.goal: "G", state.cell: "A"}
        span = range(state.grid.size)
        return "\n".join("".join(marks.get((row, column), OPEN) for column in span) for row in span)

    def _distance(self, state: PathState) -> int:
        if self.rules.oracle:
            return state.grid.distances(state.goal)[state.cell]
        return manhattan(state.cell, state.goal)


def _in_words(state: PathState, view: str) -> dict[str, str]:
    rows, columns = state.goal[0] - state.cell[0], state.goal[1] - state.cell[1]
    far = [f"{abs(rows)} {'down' if rows > 0 else 'up'}"] * (rows != 0)
    far += [f"{abs(columns)} {'right' if columns > 0 else 'left'}"] * (columns != 0)
    looks = dict(zip(WAYS, state.around(), strict=True))
    been = ", ".join(way for way, seen in looks.items() if seen == VISITED)
    goal = {"goal": " and ".join(far)}
    ways = {"ways": ", ".join(way for way, seen in looks.items() if seen != BLOCKED), "been": been or "none of them"}
    return goal if view == "planner" else ways if view == "executor" else goal | ways


def _name(cell: Cell) -> str:
    """Row and column, one digit each."""
    return f"{cell[0]}{cell[1]}"
