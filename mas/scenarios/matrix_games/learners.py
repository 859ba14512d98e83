"""Opponents that learn within a game, each of any seat: Hedge, regret matching."""

from collections.abc import Mapping
from random import Random

from mas.core.environment import Environment
from mas.scenarios.against import Policy
from mas.scenarios.matrix_games.environment import NONE, MatrixEnvironment, by_habit
from mas.scenarios.matrix_games.games import MatrixGame
from mas.scenarios.regret import Array, hedge, hedge_step, regret_matching


def next_mix(game: MatrixEnvironment, seat: str, kind: str) -> Array:
    """How likely a learner's actions are in this round, given the rounds so far. [n]

    Hedge's step is the one of its bound for all rounds of this game. Regret matching counts actions that were drawn.
    """
    worth, state = game.worth(seat), game.state
    if kind == "hedge":
        return hedge(worth, hedge_step(state.total, len(game.rules.actions), _width(game.rules, is_row=seat == "row")))
    own = [mine if seat == "row" else theirs for mine, theirs in state.rounds]
    # A round in which it made no legal move, as it never does, would not count.
    done = [at for at, action in enumerate(own) if action != NONE]
    return regret_matching(worth[done], [game.rules.actions.index(own[at]) for at in done])


def by_hedge(environment: Environment, seat: str, random: Random) -> str:
    """Multiplicative weights over what its actions would have paid."""
    return _drawn(environment, seat, random, "hedge")


def by_regret_matching(environment: Environment, seat: str, random: Random) -> str:
    """Each action as likely as it is regretted."""
    return _drawn(environment, seat, random, "regret_matching")


OPPONENTS: Mapping[str, Policy] = {"habit": by_habit, "hedge": by_hedge, "regret_matching": by_regret_matching}


def _drawn(environment: Environment, seat: str, random: Random, kind: str) -> str:
    assert isinstance(environment, MatrixEnvironment)
    return random.choices(environment.rules.actions, next_mix(environment, seat, kind).tolist())[0]


def _width(rules: MatrixGame, is_row: bool) -> float:
    payoffs = [value for row in (rules.row if is_row else rules.column) for value in row]
    return max(payoffs) - min(payoffs)
