"""`leader_follower`: one knows which colour counts now, the other can walk (after ColorGrid, arXiv 2501.10593).

The leader sees the goal colour, which changes at hidden times; the follower sees the board, and one token of the
leader's. A block of the goal colour is worth 1, one of another colour costs 1; a collected block comes back elsewhere.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.seeds import derive_seed
from mas.scenarios.leader_follower.board import COLOURS, EMPTY, Board, make_board, make_goals
from mas.scenarios.plan_path.grid import MOVES, Cell, neighbour
from mas.scenarios.world import RecordEnvironment

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


class ColourRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial: `blocks` of each colour on `size` x `size` cells, `switch` the chance of a new goal in each turn,
    `quota` the score that solves the task. `progress` is paid per cell that the follower came nearer."""

    size: int = 4
    blocks: int = 2
    switch: float = 0.15
    quota: int = 3
    max_turns: int = 12
    progress: float = 0.1


class ColourEnvironment(RecordEnvironment[ColourState]):
    """One move a turn, until the score is the quota or `max_turns`."""

    state_type: ClassVar[type[msgspec.Struct]] = ColourState

    def __init__(self, rules: ColourRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="leader_follower",
                seats=("team",),
                views=("leader", "follower", "solo"),
                max_turns=rules.max_turns,
                terms=("collect", "mistake", "progress"),
            )
        )
        self.rules = rules

    def initial(self, task: Task) -> ColourState:
        return make(Random(task.seed), self.rules)

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
        terms, found, board, score = {"progress": self.rules.progress * nearer}, state.board.at(cell), state.board, 0
        if found != EMPTY:
            score = 1 if found == goal else -1
            terms["collect" if found == goal else "mistake"] = float(score)
            board = _come_back(state, cell, found)
        after = msgspec.structs.replace(state, board=board, cell=cell, score=state.score + score, turn=state.turn + 1)
        return after, terms, True

    def is_over(self, state: ColourState) -> bool:
        return self.is_solved(state) or state.turn >= self.rules.max_turns

    def is_solved(self, state: ColourState) -> bool:
        return state.score >= self.rules.quota

    def render(self) -> str:
        state = self.state
        return f"turn {state.turn}, goal {state.goal}, score {state.score}\n{state.board.rows(state.cell)}"


def make(random: Random, rules: ColourRules) -> ColourState:
    """A board, its goals, and a seed for what comes back."""
    board, cell = make_board(random, rules.size, rules.blocks)
    goals = make_goals(random, rules.max_turns, rules.switch)
    return ColourState(board=board, cell=cell, goals=goals, seed=random.randrange(2**32))


def _come_back(state: ColourState, cell: Cell, colour: str) -> Board:
    """The board without the block in the follower's new cell, and one of its colour in a free one."""
    board = state.board.with_block(cell, EMPTY)
    free = [place for place in board.of(EMPTY) if place not in (cell, state.cell)]
    random = Random(derive_seed("block", state.seed, state.turn))
    return board.with_block(random.choice(free), colour)
