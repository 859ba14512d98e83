"""Who plays against a habit as well as can be, and who teaches the tiny base."""

from collections.abc import Iterator, Mapping
from random import Random

import msgspec
import numpy as np

from mas.core.messages import Payload
from mas.core.reward import Move
from mas.scenarios.against import Against
from mas.scenarios.matrix_games.environment import COLUMN, MatrixEnvironment, MatrixState, best_moves, make
from mas.scenarios.matrix_games.games import GAMES
from mas.scenarios.matrix_games.learners import next_mix
from mas.scenarios.noisy_teacher import NoisyTeacher


class ForesightReward:
    """`foresight`: 0.2 for the analyst who says what the opponent then plays. It needs no knowledge of habits: what was
    played is seen a moment later."""

    terms: tuple[str, ...] = ("foresight",)

    def own(self, move: Move) -> Mapping[str, float]:
        if move.role != "analyst":
            return {}
        return {"foresight": 0.2 if _said(move.output) == coming(move.environment) else 0.0}


def coming(environment: object) -> str:
    """What the opponent plays in this round."""
    assert isinstance(environment, Against)
    return environment.coming(COLUMN)


def expert(environment: Against, random: Random, *, opponent: str) -> dict[str, str]:
    """The best play against a habit that is known; in each round the best reply to a learner's mix."""
    game = _game(environment)
    if opponent == "habit":
        return {"team": random.choice(best_moves(game.rules, game.state))}
    pays = np.array(game.rules.row) @ next_mix(game, COLUMN, opponent)
    best = [mine for mine, paid in zip(game.rules.actions, pays, strict=True) if paid > pays.max() - 1e-9]
    return {"team": random.choice(best)}


def demonstrations(random: Random, skill: float, *, name: str) -> Iterator[tuple[str, str]]:
    """The analyst foresees with `skill`; its habit is to expect what was there last. The player replies best to what it
    is told with `skill`; its habit is to play the same. The solo agent does both at once."""
    teacher, rules = NoisyTeacher(random, skill), GAMES[name]
    game = MatrixEnvironment(name)
    while True:
        state = _after(random, make(random, rules), game)
        seen, letters = game.fields(state, "row"), rules.actions
        right = state.habit.next(rules, state.rounds)
        last = seen["theirs"][-1] if seen["theirs"][-1] in letters else letters[0]
        told = random.choice(letters)
        yield f"A{seen['mine']}{seen['theirs']}>", teacher.answer(right, last, letters)
        yield f"P{told}>", teacher.answer(rules.best_reply(told), told, letters)
        yield f"S{seen['mine']}{seen['theirs']}>", teacher.answer(rules.best_reply(right), last, letters)


def _after(random: Random, state: MatrixState, game: MatrixEnvironment) -> MatrixState:
    """Somewhere in a game that row plays at random."""
    for _ in range(random.randrange(state.total)):
        mine = random.choice(game.rules.actions)
        theirs = state.habit.next(game.rules, state.rounds)
        state = msgspec.structs.replace(state, rounds=(*state.rounds, (mine, theirs)))
    return state


def _game(environment: object) -> MatrixEnvironment:
    assert isinstance(environment, Against)
    assert isinstance(environment.game, MatrixEnvironment)
    return environment.game


def _said(payload: Payload) -> str:
    return payload.content
