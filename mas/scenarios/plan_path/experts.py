"""Scripted members of the team: the best that each can do from its own view. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.plan_path.environment import OPEN, VISITED, PathEnvironment, PathState
from mas.scenarios.plan_path.grid import BACK, MOVES, WAYS, Cell, PathGrid, make_grid, manhattan, neighbour


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
    digits = "0123456789"[: state.grid.size]
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
    yield f"V{around}{proposed}>", teacher.answer("y" if proposed in sensible else "n", "y", "yn")
    yield f"F{around}>", teacher.answer(suggested, on, moves)
    yield f"S{cell}{state.last}{goal}{around}>", teacher.answer(team_move(state, random), on, moves)
