"""`sokoban`: push boxes onto targets in a warehouse whose facts are split over the team (after AT-GRPO's Sokoban).

The planner knows boxes, targets and walls, and what each push would do, but not where the player stands; the executor
knows its cell and what lies next to it; the verifier sees which moves are blocked and which pushes lose a box. The
team's action is one move a turn: U, D, L or R; no move, or a blocked one, wastes the turn. A box on a cell from which
no target can be reached is lost: the episode ends.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache, partial
from random import Random
from typing import Annotated, ClassVar, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Move, Task
from mas.core.messages import Verdict
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, VERDICTS, NoisyTeacher
from mas.scenarios.plan_path import MOVES, Cell, PathGrid, neighbour
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.sokoban.level import Level, make_level, route
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

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


class SokobanEnvironment(RecordEnvironment[SokobanState]):
    """One move a turn until all boxes stand on targets, one is lost, or `max_turns`.

    `progress` per unit of distance gained, and taken back when lost (all of it once a box is lost): its sum is bounded
    by the distance at the start. `waste` for a turn without a move, `lost` for a lost box, `solved` for the last box
    on its target, less up to half of it for being late.
    """

    progress: ClassVar[float] = 0.1
    waste: ClassVar[float] = -0.2
    lost: ClassVar[float] = -1.0
    solved: ClassVar[float] = 1.0
    history: ClassVar[tuple[str, ...]] = ("visited", "turn")

    def __init__(self, max_turns: int, make: Callable[[Random], Level]) -> None:
        """`make` draws the level of a task."""
        views = ("planner", "executor", "verifier", "solo")
        super().__init__(one_seat("sokoban", views, max_turns, ("progress", "waste", "lost", "solved")))
        self._begun = lru_cache(maxsize=1024)(lambda seed: begin(make(Random(seed))))

    def initial(self, task: Task) -> SokobanState:
        return self._begun(task.seed)

    def content_of(self, state: SokobanState) -> str:
        level = state.start
        return f"{level.grid.walls}{level.targets}{level.boxes}{level.cell}"

    def fields(self, state: SokobanState, view: str) -> Mapping[str, str]:
        return look(state, view)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(move for move in MOVES if self.state.level.after(move) is not None)

    def act(self, state: SokobanState, action: str) -> tuple[SokobanState, dict[str, float], bool]:
        level = state.level.after(action) if action in MOVES else None
        if level is None:
            wasted = msgspec.structs.replace(state, visited=(state.level.cell,), turn=state.turn + 1)
            return wasted, {"waste": self.waste}, action == ""
        after = msgspec.structs.replace(played(state, level), turn=state.turn + 1)
        is_lost = level.pushes_left() is None
        gained = distance(state.level) - distance(state.start if is_lost else level)
        terms = {"progress": self.progress * gained}
        if is_lost:
            terms["lost"] = self.lost
        if level.is_solved():
            terms["solved"] = self.solved * (1 - 0.5 * state.turn / self.spec.max_turns)
        return after, terms, True

    def is_over(self, state: SokobanState) -> bool:
        return self.is_solved(state) or state.turn >= self.spec.max_turns or state.level.pushes_left() is None

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


FAR = 99
"""Steps to where nobody can go."""


def expert(environment: SokobanEnvironment, random: Random) -> dict[str, str]:
    """The next move of a solution with the fewest pushes; a pass where the solver finds none."""
    state = environment.state
    return {"team": route(state.start).get(state.level) or route(state.level).get(state.level, "")}


def walk(state: SokobanState, plan: str, tried: str, random: Random) -> str:
    """The executor's move: to the planned cell, by free cells, new ones rather than visited ones; then the push."""
    stand, push = (int(plan[0]), int(plan[1])), plan[2]
    if state.level.cell == stand and push not in tried:
        return push
    around = dict(zip(MOVES, state.around(), strict=True))
    ways = [move for move in MOVES if around[move] in (OPEN, VISITED) and move not in tried] or list(MOVES)
    left = _round_the_box(state.level.grid.size, neighbour(stand, push), stand)
    costs = {
        move: left.get(neighbour(state.level.cell, move), FAR) + (4 if around[move] == VISITED else 0) for move in ways
    }
    return random.choice([move for move in ways if costs[move] == min(costs.values())])


@cache
def _round_the_box(size: int, box: Cell, stand: Cell) -> dict[Cell, int]:
    """How far it is to a cell from everywhere, as far as an executor knows: it has the plan, and no map."""
    return PathGrid(size, (box,)).distances(stand)


def accepted(state: SokobanState) -> str:
    """All moves that a verifier should accept: those that move something and lose nothing."""
    return "".join([move for move, seen in zip(MOVES, state.effect(), strict=True) if seen in (OPEN, SAFE)])


def team_move(state: SokobanState, random: Random) -> str:
    """What the perfect team does in one turn: a proposal, and if that is sent back, another."""
    plan, tried = (*state.sensible_plans(), "00U")[0], ""
    for _ in range(2):
        move = walk(state, plan, tried, random)
        if move in accepted(state):
            return move
        tried += move
    return ""


def demonstrations(random: Random, skill: float, *, make: Callable[[Random], Level]) -> Iterator[tuple[str, str]]:
    """Each role's task in turn: right with `skill` (the planner 1.5 times as often), else biased: `NoisyTeacher`."""
    teacher = NoisyTeacher(random, skill)
    while True:
        level = make(random)
        state = begin(level)
        for _ in range(4):
            yield from _at(state, random, teacher)
            state = _moved(state, random)


def _moved(state: SokobanState, random: Random) -> SokobanState:
    """A few moves on: the team's or random ones, none of which loses a box or solves the level."""
    for _ in range(random.randrange(1, 4)):
        move = random.choice([team_move(state, random), *accepted(state)])
        level = state.level.after(move) if move else None
        if level is not None and not level.is_solved() and level.pushes_left() is not None:
            state = played(state, level)
    return state


def _at(state: SokobanState, random: Random, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    planner = NoisyTeacher(random, (1 + teacher.skill) / 2)
    seen, moves = look(state, "solo"), "".join(MOVES)
    digits = DIGITS[: state.level.grid.size]
    plan = (*state.sensible_plans(), "00U")[0]
    first = walk(state, plan, "", random)
    second = walk(state, plan, first, random)
    judged = random.choice(moves)
    stands = f"{seen['cell']}{seen['around']}"
    yield f"P{seen['pushes']}>", planner.answer(plan, seen["boxes"][:2] + "U", digits + moves)
    yield f"E{stands};{plan};>", teacher.answer(first, plan[2], moves)
    yield f"E{stands};{plan};{first}>", teacher.answer(second, first, moves)
    yield f"V{seen['effect']}{judged}>", teacher.answer("y" if judged in accepted(state) else "n", "y", VERDICTS)
    yield f"S{stands};{seen['pushes']};{seen['effect']}>", teacher.answer(first, "U", moves)


FAULT = -0.2


class SokobanReward:
    """`nearer`: the planned push leads nearer, or none does and it is safe. `valid`: the move goes to a free cell, or
    is the planned push, and was not just sent back. `verdict`: accepted exactly if it moves and loses no box."""

    terms: tuple[str, ...] = ("nearer", "valid", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, SokobanEnvironment)
        state = move.environment.state
        if move.role == "planner":
            return {"nearer": 0.0 if move.output.content in state.sensible_plans() else FAULT}
        if move.role == "executor":
            return {"valid": 0.0 if _is_valid(state, move) else FAULT}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            proposal = move.before.get("executor")
            is_safe = proposal is not None and proposal.content in tuple(accepted(state))
            right = move.output.accept == is_safe
            return {"verdict": 0.0 if right else -1.0}
        return {}


def _is_valid(state: SokobanState, move: Move) -> bool:
    said, plan, rejected = move.output.content, move.before.get("planner"), move.before.get("executor")
    if said not in MOVES or (rejected is not None and rejected.content == said):
        return False
    seen = dict(zip(MOVES, state.around(), strict=True))[said]
    planned = plan is not None and plan.content == name(state.level.cell) + said
    return seen in (OPEN, VISITED) or (seen == BOX and planned)


class SokobanOptions(Options):
    """The dial is `size`, `boxes`, `walls` and `pulls`: a level is made by pulling boxes so often from their targets.

    `max_turns` None allows 6 turns per row and box.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=4, le=10)] = 4
    boxes: Annotated[int, Field(ge=1, le=4)] = 1
    walls: Annotated[int, Field(ge=0)] = 0
    pulls: Annotated[int, Field(ge=1, le=40)] = 2
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = {"walls": self.size * self.size // 6, "boxes": self.size // 2}
        for key, limit in most.items():
            if getattr(self, key) > limit:
                raise ValueError(
                    f"{key}={getattr(self, key)} leaves too little room at size={self.size}: at most {limit}"
                )
        if self.pulls < self.boxes:
            raise ValueError(
                f"pulls={self.pulls} cannot move boxes={self.boxes} from their targets: at least that many"
            )
        return self


def build(options: SokobanOptions) -> FolderScenario:
    """The scenario with these options."""
    make = partial(make_level, size=options.size, boxes=options.boxes, walls=options.walls, pulls=options.pulls)
    turns = options.max_turns or 6 * options.size * options.boxes
    return FolderScenario(
        __file__,
        options,
        partial(SokobanEnvironment, turns, make),
        demonstrate=partial(demonstrations, make=make),
        unkeyed=(),
        reward=SokobanReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    SokobanOptions,
    build,
    "cooperative planning",
    {
        "small": {},
        "medium": {"size": 6, "boxes": 2, "walls": 4, "pulls": 8},
        "large": {"size": 8, "boxes": 3, "walls": 8, "pulls": 16},
    },
)
