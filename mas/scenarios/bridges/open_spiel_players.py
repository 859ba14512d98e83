"""Opponents by OpenSpiel's search and solvers, as policies of a seat: they look into the game, not at a view of it."""

from math import fsum
from random import Random
from typing import Any

from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.scenarios.bridges.open_spiel import (
    EXTRA,
    OWN,
    OpenSpielPosition,
    is_in_turn,
    is_open,
    legal_actions,
    load_game,
)
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.game import game_below
from mas.scenarios.wrappers import Policy

SOLVED = {
    "kuhn_poker": 2000,
    "leduc_poker": 500,
    "matrix_brps": 50000,
    "matrix_mp": 100,
    "matrix_rps": 100,
    "matrix_rpsw": 2000,
    "tic_tac_toe": 0,
}
"""What `solver` plays, and the iterations of CFR+ until NashConv is at most 0.002; 0: minimax."""
MOST_STATES = 300_000
"""Positions that `minimax` keeps; tic-tac-toe has 5,478."""


def minimax(name: str) -> Policy:
    """Perfect play of a game of two seats, zero-sum, in turn, nothing hidden: one of the best moves, each as likely.

    The whole game is walked through once, and values of positions are kept.

    Args:
        name: as `load_game` takes it.

    Raises:
        ConfigError: another kind of game; while playing, a game with more than `MOST_STATES` positions.
    """
    game = load_game(name)
    is_zero_sum = game.get_type().utility == game.get_type().Utility.ZERO_SUM
    if not (is_open(game) and is_in_turn(game) and is_zero_sum and game.num_players() == 2):
        raise ConfigError(
            f"minimax cannot play {name!r}: it needs two seats that move in turn, zero-sum, nothing hidden; "
            "cfr and mcts play games with hidden information"
        )
    known: dict[str, float] = {}

    def value(state: Any) -> float:
        """What the first seat gets."""
        if state.is_terminal():
            return float(state.returns()[0])
        key = f"{state.current_player()} {state}"
        if key not in known:
            if len(known) >= MOST_STATES:
                raise ConfigError(f"minimax cannot play {name!r}: more than {MOST_STATES:,} positions; take mcts")
            known[key] = value_of(state)
        return known[key]

    def value_of(state: Any) -> float:
        if state.is_chance_node():
            return fsum(chance * value(state.child(action)) for action, chance in state.chance_outcomes())
        found = [value(state.child(action)) for action in state.legal_actions()]
        return max(found) if state.current_player() == 0 else min(found)

    def play(environment: Environment, seat: str, random: Random) -> str:
        state = _state(environment)
        sign = 1 if state.current_player() == 0 else -1
        worth = {action: sign * value(state.child(action)) for action in state.legal_actions()}
        best = max(worth.values())
        return _said(state, random.choice([action for action, found in worth.items() if found == best]))

    return play


def cfr(name: str, iterations: int = 500) -> Policy:
    """The average policy of counterfactual regret minimisation (CFR+; Tammelin 2014), from which it draws; for games as
    small as Kuhn and Leduc poker.

    Raises:
        ConfigError: a game of moves at once, or fewer than one iteration.
    """
    if iterations < 1:
        raise ConfigError(f"cfr:{iterations}: at least one iteration is needed")
    game = load_game(name)
    if not is_in_turn(game):
        raise ConfigError(f"cfr cannot play {name!r}: it needs seats that move in turn")
    return _average(game, iterations)


def solver(name: str) -> Policy:
    """An equilibrium of a two-player zero-sum game, from which it draws: its play loses nothing on average against the
    best answer, over both seats. `tic_tac_toe` by `minimax`, other games by CFR+; of one-shot games each seat's mix.

    Raises:
        ConfigError: a game that is not among `SOLVED`.
    """
    if name not in SOLVED:
        raise ConfigError(
            f"solver cannot play {name!r}: no equilibrium of it is known here, only of {', '.join(SOLVED)}; cfr and "
            "mcts play other games of OpenSpiel's"
        )
    return _average(load_game(name), SOLVED[name]) if SOLVED[name] else minimax(name)


def _average(game: Any, iterations: int) -> Policy:
    """The average policy of CFR+, from which it draws; seats that move at once know nothing of each other's move."""
    pyspiel = load_package("pyspiel", EXTRA)
    found = pyspiel.CFRPlusSolver(game if is_in_turn(game) else pyspiel.convert_to_turn_based(game))
    for _ in range(iterations):
        found.evaluate_and_update_policy()
    policy = found.tabular_average_policy()

    def play(environment: Environment, seat: str, random: Random) -> str:
        state, number = _state(environment), environment.spec.seats.index(seat)
        seen = state if is_in_turn(game) else f"Current player: {number}\n{state.information_state_string(number)}"
        chances = policy.action_probabilities(seen)
        actions, weights = zip(*sorted(chances.items()), strict=True)
        return _said(state, random.choices(actions, weights)[0], number)

    return play


def mcts(name: str, simulations: int = 200) -> Policy:
    """Monte Carlo tree search with random play-outs; where something is hidden, information-set search (Cowling et al.
    2012) in deals that fit what the seat knows.

    Raises:
        ConfigError: a game of moves at once, one with hidden information that is written here, as only OpenSpiel's own
            can draw deals, or fewer than one simulation.
    """
    if simulations < 1:
        raise ConfigError(f"mcts:{simulations}: at least one simulation is needed")
    game, pyspiel = load_game(name), load_package("pyspiel", EXTRA)
    if not is_in_turn(game):
        raise ConfigError(f"mcts cannot play {name!r}: it needs seats that move in turn")
    if game.get_type().short_name in OWN and not is_open(game):
        raise ConfigError(f"mcts cannot play {name!r}: the game cannot draw deals that fit what a seat knows; take cfr")
    exploration, any_number, most_visited = 2.0, -1, pyspiel.ISMCTSFinalPolicyType.MAX_VISIT_COUNT

    def play(environment: Environment, seat: str, random: Random) -> str:
        state, seed = _state(environment), random.getrandbits(31)
        evaluator = pyspiel.RandomRolloutEvaluator(1, random.getrandbits(31))
        if is_open(game):
            bot = pyspiel.MCTSBot(game, evaluator, exploration, simulations, 64, True, seed, False)
        else:
            bot = pyspiel.ISMCTSBot(seed, evaluator, exploration, simulations, any_number, most_visited, False, False)
        return _said(state, bot.step(state))

    return play


def _state(environment: Environment) -> Any:
    game = game_below(environment)
    if game is None or not isinstance(game.position, OpenSpielPosition):
        raise ConfigError(f"{environment.spec.name} is no game of OpenSpiel: only random can play it")
    return game.position.copy_state()


def _said(state: Any, action: int, seat: int | None = None) -> str:
    """An action as the environment reads it; `seat` None: that which moves."""
    seat = state.current_player() if seat is None else seat
    return next(text for text, number in legal_actions(state, seat).items() if number == action)
