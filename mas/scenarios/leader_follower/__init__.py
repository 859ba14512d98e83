"""`leader_follower`: one knows which colour counts now, the other can walk (after ColorGrid, arXiv 2501.10593).

The leader sees the goal colour, which changes at hidden times; the follower sees the board, and one token of the
leader's. A block of the goal colour is worth 1, one of another colour costs 1; a collected block comes back elsewhere.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, ClassVar, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Task
from mas.core.options import Options
from mas.core.seeds import derive_seed
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.plan_path import MOVES, Cell, manhattan, neighbour
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, one_seat

COLOURS = "rgb"
EMPTY, FOLLOWER = ".", "@"


class Board(msgspec.Struct, frozen=True):
    """`cells` are rows from the top, each from the left: the colour of a block, or `.`."""

    size: int
    cells: str

    def at(self, cell: Cell) -> str:
        return self.cells[cell[0] * self.size + cell[1]]

    def has(self, cell: Cell) -> bool:
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


_NAMES = {"r": "red", "g": "green", "b": "blue"}


class ColourState(msgspec.Struct, frozen=True, kw_only=True):
    """`goals` holds the goal colour of every turn; `seed` decides where blocks come back; `score` may be negative."""

    board: Board
    cell: Cell
    goals: str
    seed: int
    score: int = 0
    turn: int = 0

    @property
    def goal(self) -> str:
        """The colour that counts now; after the last turn the one that counted then."""
        return self.goals[min(self.turn, len(self.goals) - 1)]

    def compass(self) -> str:
        """The first move towards the nearest block of each colour, in the order of `COLOURS`."""
        return "".join(self.board.way(self.cell, colour) for colour in COLOURS)

    def ways(self) -> str:
        """The compass with the colours' names: `red U, green L, blue L`."""
        moves = ((_NAMES[colour], self.board.way(self.cell, colour)) for colour in COLOURS)
        return ", ".join(f"{name} {move}" for name, move in moves if move)


class ColourOptions(Options):
    """The dial is `size`, `blocks` of each of three colours, and `switch`, the chance of a new goal in each turn.

    `quota`: score that solves the task. `max_turns`: None allows `size` turns for each point of it.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=3, le=32)] = 4
    blocks: Annotated[int, Field(ge=1)] = 2
    switch: Annotated[float, Field(ge=0, le=1)] = 0.15
    quota: Annotated[int, Field(ge=1)] = 3
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = self.size * self.size // 6
        if self.blocks > most:
            raise ValueError(f"blocks={self.blocks} leaves too little room at size={self.size}: at most {most}")
        return self

    @property
    def turns(self) -> int:
        return self.max_turns or self.size * self.quota


class ColourEnvironment(RecordEnvironment[ColourState]):
    """One move a turn, until the score is the quota or the turns are over. `progress` is paid per cell that the
    follower came nearer."""

    progress: ClassVar[float] = 0.1

    def __init__(self, rules: ColourOptions) -> None:
        terms = ("collect", "mistake", "progress")
        super().__init__(one_seat("leader_follower", ("leader", "follower", "solo"), rules.turns, terms))
        self.rules = rules

    def initial(self, task: Task) -> ColourState:
        return make(Random(task.seed), self.rules)

    def content_of(self, state: ColourState) -> str:
        return f"{state.board.cells}{state.cell}{state.goals}"

    def fields(self, state: ColourState, view: str) -> Mapping[str, str]:
        if view == "leader":
            return {"goal": state.goal}
        seen = {"board": state.board.rows(state.cell), "compass": state.compass(), "ways": state.ways()}
        return seen if view == "follower" else {"goal": state.goal} | seen

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(move for move in MOVES if self.state.board.has(neighbour(self.state.cell, move)))

    def act(self, state: ColourState, action: str) -> tuple[ColourState, dict[str, float], bool]:
        if action not in MOVES or not state.board.has(neighbour(state.cell, action)):
            return msgspec.structs.replace(state, turn=state.turn + 1), {}, action == ""
        cell, goal = neighbour(state.cell, action), state.goal
        nearer = state.board.distance(state.cell, goal) - state.board.distance(cell, goal)
        terms, found, board, score = {"progress": self.progress * nearer}, state.board.at(cell), state.board, 0
        if found != EMPTY:
            score = 1 if found == goal else -1
            terms["collect" if found == goal else "mistake"] = float(score)
            board = _come_back(state, cell, found)
        after = msgspec.structs.replace(state, board=board, cell=cell, score=state.score + score, turn=state.turn + 1)
        return after, terms, True

    def is_solved(self, state: ColourState) -> bool:
        return state.score >= self.rules.quota

    def render(self) -> str:
        state = self.state
        return f"turn {state.turn}, goal {state.goal}, score {state.score}\n{state.board.rows(state.cell)}"


def make(random: Random, rules: ColourOptions) -> ColourState:
    """A board, its goals, and a seed for what comes back."""
    board, cell = make_board(random, rules.size, rules.blocks)
    goals = make_goals(random, rules.turns, rules.switch)
    return ColourState(board=board, cell=cell, goals=goals, seed=random.randrange(2**32))


def _come_back(state: ColourState, cell: Cell, colour: str) -> Board:
    """The board without the block in the follower's new cell, and one of its colour in a free one."""
    board = state.board.with_block(cell, EMPTY)
    free = [place for place in board.of(EMPTY) if place not in (cell, state.cell)]
    random = Random(derive_seed("block", state.seed, state.turn))
    return board.with_block(random.choice(free), colour)


SIGNALS = "xyz"


def best_move(state: ColourState) -> str:
    """Towards the nearest block of the goal colour, around others."""
    return state.board.way(state.cell, state.goal)


def expert(environment: ColourEnvironment, random: Random) -> dict[str, str]:
    """The greedy collector that knows the goal; it does not plan for the block after the next."""
    return {"team": best_move(environment.state)}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """The follower looks a signal up in its compass with `skill`, its habit is the first move there; the leader signals
    at random: what a signal means is left to be learned. The solo agent looks up the colour itself."""
    teacher = NoisyTeacher(random, skill)
    moves = "".join(MOVES)
    while True:
        compass, at = "".join(random.choices(moves, k=len(COLOURS))), random.randrange(len(COLOURS))
        yield f"L{random.choice(COLOURS)}>", random.choice(SIGNALS)
        yield f"F{compass};{SIGNALS[at]}>", teacher.answer(compass[at], compass[0], moves)
        yield f"S{compass};{COLOURS[at]}>", teacher.answer(compass[at], compass[0], moves)


def build(options: ColourOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(ColourEnvironment, options),
        demonstrate=demonstrations,
        unkeyed=(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    ColourOptions,
    build,
    "hidden goals",
    {
        "small": {},
        "medium": {"size": 8, "blocks": 4, "switch": 0.08, "quota": 5},
        "large": {"size": 16, "blocks": 12, "switch": 0.04, "quota": 10},
    },
)
