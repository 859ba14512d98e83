"""Scripted members of the team. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.leader_follower.board import COLOURS
from mas.scenarios.leader_follower.environment import ColourEnvironment, ColourState
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.plan_path.grid import MOVES

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
