"""Scripted members of the team: the best that each can do from its own view. They teach the tiny base."""

from collections.abc import Callable, Iterator
from functools import cache
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.plan_path.grid import MOVES, Cell, PathGrid, neighbour
from mas.scenarios.sokoban.environment import (
    OPEN,
    SAFE,
    VISITED,
    SokobanEnvironment,
    SokobanState,
    begin,
    look,
    played,
)
from mas.scenarios.sokoban.level import Level
from mas.scenarios.sokoban.solver import route

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
    digits = "0123456789"[: state.level.grid.size]
    plan = (*state.sensible_plans(), "00U")[0]
    first = walk(state, plan, "", random)
    second = walk(state, plan, first, random)
    judged = random.choice(moves)
    stands = f"{seen['cell']}{seen['around']}"
    yield f"P{seen['pushes']}>", planner.answer(plan, seen["boxes"][:2] + "U", digits + moves)
    yield f"E{stands};{plan};>", teacher.answer(first, plan[2], moves)
    yield f"E{stands};{plan};{first}>", teacher.answer(second, first, moves)
    yield f"V{seen['effect']}{judged}>", teacher.answer("y" if judged in accepted(state) else "n", "y", "yn")
    yield f"S{stands};{seen['pushes']};{seen['effect']}>", teacher.answer(first, "U", moves)
