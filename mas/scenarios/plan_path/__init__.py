"""`plan_path`: find the way through a grid whose facts are split over the team (after AT-GRPO's Plan-Path).

The planner knows the goal, the executor where it stands, the verifier and the feedback agent what surrounds it.
The team's action is one move a turn: U, D, L or R; a bump into a wall or the border, or no move, wastes the turn, and
the team forgets where it was before: what its members see changes, so that a greedy team is not stuck for good.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, ClassVar, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Move, Task
from mas.core.messages import Payload, Verdict
from mas.core.options import Options
from mas.scenarios.noisy_teacher import DIGITS, VERDICTS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, Style, one_seat

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


OPEN, VISITED, BLOCKED = ".", "o", "#"


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

    history: ClassVar[tuple[str, ...]] = ("visited", "last", "turn")

    def __init__(self, rules: PathRules, style: Style = "letters") -> None:
        views = ("planner", "executor", "verifier", "feedback", "solo")
        super().__init__(one_seat("plan_path", views, rules.max_turns, ("progress", "waste", "goal")))
        self.rules = rules
        self.style: Style = style

    def initial(self, task: Task) -> PathState:
        grid, start, goal = make_grid(Random(task.seed), self.rules.size, self.rules.walls)
        return PathState(grid, goal, start, (start,))

    def content_of(self, state: PathState) -> str:
        return f"{state.grid.walls}{state.cell}{state.goal}"

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


def towards(cell: Cell, goal: Cell, last: str, random: Random) -> str:
    """The executor's move: nearer to the goal, not straight back; at random among equals."""
    best = min(MOVES, key=lambda move: _cost(cell, goal, last, move))
    equal = [move for move in MOVES if _cost(cell, goal, last, move) == _cost(cell, goal, last, best)]
    return random.choice(equal)


def _cost(cell: Cell, goal: Cell, last: str, move: str) -> int:
    return manhattan(neighbour(cell, move), goal) + (4 if BACK.get(last) == move else 0)


def sensible_moves(around: str) -> list[str]:
    """All moves that a verifier should accept."""
    wanted = OPEN if OPEN in around else VISITED
    return [move for move, seen in zip(MOVES, around, strict=True) if seen == wanted]


def team_move(state: PathState, random: Random) -> str:
    """What the perfect team does in one turn: towards the goal, and if that is rejected, a move that is open."""
    move = towards(state.cell, state.goal, state.last, random)
    sensible = sensible_moves(state.around())
    return move if move in sensible or not sensible else random.choice(sensible)


def expert(environment: PathEnvironment, random: Random) -> dict[str, str]:
    """A step of a shortest path, which nobody in the team can see whole."""
    state = environment.state
    left = state.grid.distances(state.goal)
    ways = [move for move in MOVES if left.get(neighbour(state.cell, move), len(left)) < left[state.cell]]
    move = random.choice(ways)
    names = {letter: name for name, letter in WAYS.items()}
    return {"team": names[move] if environment.style == "words" else move}


def demonstrations(random: Random, skill: float, *, size: int, walls: int) -> Iterator[tuple[str, str]]:
    """Each role's task in turn: right with `skill` (the planner 1.5 times as often), else biased: `NoisyTeacher`."""
    teacher = NoisyTeacher(random, skill)
    while True:
        grid, start, goal = make_grid(random, size, walls)
        yield from _at(_somewhere(random, grid, start, goal), random, teacher)


def _somewhere(random: Random, grid: PathGrid, start: Cell, goal: Cell) -> PathState:
    state = PathState(grid, goal, start, (start,))
    for _ in range(random.randrange(6)):
        open_moves = [move for move in MOVES if grid.is_free(neighbour(state.cell, move))]
        move = random.choice(open_moves)
        cell = neighbour(state.cell, move)
        if cell != goal:
            state = PathState(grid, goal, cell, (*state.visited, cell), move)
    return state


def _at(state: PathState, random: Random, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    planner = NoisyTeacher(random, (1 + teacher.skill) / 2)
    digits = DIGITS[: state.grid.size]
    goal, cell, around = (f"{state.goal[0]}{state.goal[1]}", f"{state.cell[0]}{state.cell[1]}", state.around())
    moves = "".join(MOVES)
    on = state.last if state.last in MOVES else "U"
    direct = towards(state.cell, state.goal, state.last, random)
    sensible = sensible_moves(around) or list(moves)
    proposed = random.choice(moves)
    suggested = random.choice(sensible)
    yield f"P{goal}>", planner.answer(goal, digits[0] * 2, digits)
    yield f"E{cell}{state.last}{goal};>", teacher.answer(direct, on, moves)
    yield f"E{cell}{state.last}{goal};{proposed}{suggested}>", teacher.answer(suggested, proposed, moves)
    yield f"V{around}{proposed}>", teacher.answer("y" if proposed in sensible else "n", "y", VERDICTS)
    yield f"F{around}>", teacher.answer(suggested, on, moves)
    yield f"S{cell}{state.last}{goal}{around}>", teacher.answer(team_move(state, random), on, moves)


class PathReward:
    """`valid`: the proposed move is sensible. `verdict`: accepted exactly when it is. `improvement`: the proposal
    after the feedback against the one before it. All from the surroundings, none from a shortest path."""

    terms: tuple[str, ...] = ("valid", "verdict", "improvement")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, PathEnvironment)
        world = move.environment
        if move.role == "executor":
            return {"valid": 0.2 if _sensible(world, move.output) else 0.0}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            right = move.output.accept == _sensible(world, move.before.get("executor"))
            return {"verdict": 1.0 if right else -1.0}
        if move.role == "feedback":
            gain = _sensible(world, move.after.get("executor")) - _sensible(world, move.before.get("executor"))
            return {"improvement": float(gain)}
        return {}


def _sensible(world: PathEnvironment, proposal: Payload | None) -> bool:
    return proposal is not None and world.state.is_sensible(world.move(proposal.content))


class PathOptions(Options):
    """The dial is `size` and `walls`; `max_turns` None allows 3 turns per row.

    `style`: moves are letters, which the tiny base can learn, or words, for models that chat.
    `oracle` lets the shortest path into the reward (off: distance as if there were no walls).
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=3, le=10)] = 4
    walls: Annotated[int, Field(ge=0)] = 3
    max_turns: Annotated[int, Field(ge=1)] | None = None
    oracle: bool = False
    style: Style = "letters"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.25

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = self.size * self.size // 4
        if self.walls > most:
            raise ValueError(f"walls={self.walls} leaves too little room at size={self.size}: at most {most}")
        return self


def build(options: PathOptions) -> FolderScenario:
    """The scenario with these options."""
    size, walls = options.size, options.walls
    rules = PathRules(size=size, walls=walls, max_turns=options.max_turns or 3 * size, oracle=options.oracle)
    return FolderScenario(
        __file__,
        options,
        partial(PathEnvironment, rules, options.style),
        demonstrate=partial(demonstrations, size=size, walls=walls),
        inner="words" if options.style == "words" else "",
        unkeyed=("style",),
        reward=PathReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    PathOptions,
    build,
    "cooperative planning",
    {"small": {}, "medium": {"size": 6, "walls": 7}, "large": {"size": 10, "walls": 20}},
)
