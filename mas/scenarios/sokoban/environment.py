"""`sokoban`: push boxes onto targets in a warehouse whose facts are split over the team (after AT-GRPO's Sokoban).

The planner knows boxes, targets and walls, and what each push would do, but not where the player stands; the executor
knows its cell and what lies next to it; the verifier sees which moves are blocked and which pushes lose a box. The
team's action is one move a turn: U, D, L or R; no move, or a blocked one, wastes the turn. A box on a cell from which
no target can be reached is lost: the episode ends.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.scenarios.plan_path.grid import MOVES, Cell, neighbour
from mas.scenarios.sokoban.level import Level
from mas.scenarios.world import RecordEnvironment

OPEN, VISITED, WALL, BOX = ".", "o", "#", "$"
NEARER, FARTHER, SAFE, LOST = "+", "-", "p", "x"


class SokobanState(msgspec.Struct, frozen=True):
    """A level and how it is played.

    Attributes:
        start: how it began.
        visited: where the player was since the start, the last push or the last wasted turn.
    """

    start: Level
    level: Level
    visited: tuple[Cell, ...]
    turn: int = 0

    def around(self) -> str:
        """What lies U, D, L and R of the player: open, visited, a wall or a box."""
        return "".join([self._look(neighbour(self.level.cell, move)) for move in MOVES])

    def effect(self) -> str:
        """What the moves U, D, L and R do: a walk `.`, a safe push `p`, a push that loses a box `x`, nothing `#`."""
        return "".join([self._effect(move) for move in MOVES])

    def pushes(self) -> str:
        """Per box its cell and what a push U, D, L and R does: nearer, farther, lost, impossible."""
        boxes = {box: dict.fromkeys(MOVES, WALL) for box in self.level.boxes}
        now = self.level.pushes_left() or 0
        for stand, move, after in self.level.pushes():
            left = after.pushes_left()
            boxes[neighbour(stand, move)][move] = LOST if left is None else NEARER if left < now else FARTHER
        return " ".join(name(box) + "".join(seen.values()) for box, seen in boxes.items())

    def sensible_plans(self) -> tuple[str, ...]:
        """Where to stand and which way to push (`22U`): what leads nearer; if nothing does, all that is safe."""
        now = self.level.pushes_left() or 0
        safe = {name(stand) + move: after.pushes_left() for stand, move, after in self.level.pushes()}
        nearer = tuple(plan for plan, left in safe.items() if left is not None and left < now)
        return nearer or tuple(plan for plan, left in safe.items() if left is not None)

    def _look(self, cell: Cell) -> str:
        if cell in self.level.boxes or not self.level.grid.is_free(cell):
            return BOX if cell in self.level.boxes else WALL
        return VISITED if cell in self.visited else OPEN

    def _effect(self, move: str) -> str:
        after = self.level.after(move)
        if after is None:
            return WALL
        if after.boxes == self.level.boxes:
            return OPEN
        return LOST if after.pushes_left() is None else SAFE


class SokobanRules(msgspec.Struct, frozen=True, kw_only=True):
    """How many turns are allowed, and what the environment pays.

    `progress` per unit of distance gained, and taken back when lost (all of it once a box is lost): its sum is bounded
    by the distance at the start. `waste` for a turn without a move, `lost` for a lost box, `solved` for the last box
    on its target, less up to half of it for being late.
    """

    max_turns: int = 30
    progress: float = 0.1
    waste: float = -0.2
    lost: float = -1.0
    solved: float = 1.0


class SokobanEnvironment(RecordEnvironment[SokobanState]):
    """One move a turn until all boxes stand on targets, one is lost, or `max_turns`."""

    state_type: ClassVar[type[msgspec.Struct]] = SokobanState
    history: ClassVar[tuple[str, ...]] = ("visited", "turn")

    def __init__(self, rules: SokobanRules, make: Callable[[Random], Level]) -> None:
        """`make` draws the level of a task."""
        super().__init__(
            EnvironmentSpec(
                name="sokoban",
                seats=("team",),
                views=("planner", "executor", "verifier", "solo"),
                max_turns=rules.max_turns,
                terms=("progress", "waste", "lost", "solved"),
            )
        )
        self.rules = rules
        self._begun = lru_cache(maxsize=1024)(lambda seed: begin(make(Random(seed))))

    def initial(self, task: Task) -> SokobanState:
        return self._begun(task.seed)

    def fields(self, state: SokobanState, view: str) -> Mapping[str, str]:
        return look(state, view)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(move for move in MOVES if self.state.level.after(move) is not None)

    def act(self, state: SokobanState, action: str) -> tuple[SokobanState, dict[str, float], bool]:
        level = state.level.after(action) if action in MOVES else None
        if level is None:
            wasted = msgspec.structs.replace(state, visited=(state.level.cell,), turn=state.turn + 1)
            return wasted, {"waste": self.rules.waste}, action == ""
        after = msgspec.structs.replace(played(state, level), turn=state.turn + 1)
        is_lost = level.pushes_left() is None
        gained = distance(state.level) - distance(state.start if is_lost else level)
        terms = {"progress": self.rules.progress * gained}
        if is_lost:
            terms["lost"] = self.rules.lost
        if level.is_solved():
            terms["solved"] = self.rules.solved * (1 - 0.5 * state.turn / self.rules.max_turns)
        return after, terms, True

    def is_over(self, state: SokobanState) -> bool:
        return self.is_solved(state) or state.turn >= self.rules.max_turns or state.level.pushes_left() is None

    def is_solved(self, state: SokobanState) -> bool:
        return state.level.is_solved()

    def render(self) -> str:
        level = self.state.level
        marks = dict.fromkeys(level.grid.walls, WALL) | dict.fromkeys(level.targets, "_")
        marks |= {box: "*" if box in level.targets else BOX for box in level.boxes}
        marks |= {level.cell: "@"}
        span = range(level.grid.size)
        return "\n".join("".join(marks.get((row, column), OPEN) for column in span) for row in span)


def begin(level: Level) -> SokobanState:
    """A level before the first move."""
    return SokobanState(level, level, (level.cell,))


def played(state: SokobanState, level: Level) -> SokobanState:
    """The state with the level that a move led to; a push lets the player forget where it was."""
    visited = state.visited if level.boxes == state.level.boxes else ()
    return msgspec.structs.replace(state, level=level, visited=(*visited, level.cell))


@lru_cache(maxsize=65_536)
def distance(level: Level) -> int:
    """How far a level is from its solution, in steps; 0 exactly where it is solved, and no box may be lost.

    A push that is still needed counts as many steps as there are rows. On top comes the player's walk to the nearest
    cell from which a push leads nearer, at most two rows' worth of steps.
    """
    pushes, size = level.pushes_left() or 0, level.grid.size
    walks = level.walks() if pushes else {}
    useful = {stand for stand, _, after in level.pushes() if _is_nearer(after, pushes)} if pushes else set()
    walk = min((len(walks[stand]) for stand in useful if stand in walks), default=2 * size if pushes else 0)
    return pushes * size + min(walk, 2 * size)


def _is_nearer(after: Level, pushes: int) -> bool:
    left = after.pushes_left()
    return left is not None and left < pushes


def name(cell: Cell) -> str:
    """Row and column, one digit each."""
    return f"{cell[0]}{cell[1]}"


def _names(cells: Iterable[Cell]) -> str:
    return " ".join([name(cell) for cell in cells])


_FIELDS: Mapping[str, Callable[[SokobanState], str]] = {
    "boxes": lambda state: _names(state.level.boxes),
    "targets": lambda state: _names(state.level.targets),
    "walls": lambda state: _names(state.level.grid.walls),
    "pushes": SokobanState.pushes,
    "cell": lambda state: name(state.level.cell),
    "around": SokobanState.around,
    "effect": SokobanState.effect,
}
VIEWS: Mapping[str, tuple[str, ...]] = {
    "planner": ("boxes", "targets", "walls", "pushes"),
    "executor": ("cell", "around"),
    "verifier": ("effect",),
    "solo": tuple(_FIELDS),
}
"""View -> the fields that it sees."""


def look(state: SokobanState, view: str) -> dict[str, str]:
    """What a view sees of a state."""
    return {field: _FIELDS[field](state) for field in VIEWS[view]}
