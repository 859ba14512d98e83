"""Opponents by OpenSpiel's search and solvers, as policies of a seat: they look into the game, not at a view of it."""

from math import fsum
from random import Random
from typing import Any

from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.scenarios.against import Policy
from mas.scenarios.bridges.game import game_below
from mas.scenarios.bridges.open_spiel import EXTRA, OWN, OpenSpielPosition, load_game
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.bridges.words import named_actions

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
    game, pyspiel = load_game(name), load_package("pyspiel", EXTRA)
    kind = game.get_type()
    is_fit = (
        kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        and kind.dynamics == pyspiel.GameType.Dynamics.SEQUENTIAL
        and kind.utility == pyspiel.GameType.Utility.ZERO_SUM
        and game.num_players() == 2
    )
    if not is_fit:
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
    game, pyspiel = load_game(name), load_package("pyspiel", EXTRA)
    if game.get_type().dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ConfigError(f"cfr cannot play {name!r}: it needs seats that move in turn")
    solver = pyspiel.CFRPlusSolver(game)
    for _ in range(iterations):
        solver.evaluate_and_update_policy()
    policy = solver.tabular_average_policy()

    def play(environment: Environment, seat: str, random: Random) -> str:
        state = _state(environment)
        actions, chances = zip(*sorted(policy.action_probabilities(state).items()), strict=True)
        return _said(state, random.choices(actions, chances)[0])

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
    kind = game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ConfigError(f"mcts cannot play {name!r}: it needs seats that move in turn")
    is_perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
    if kind.short_name in OWN and not is_perfect:
        raise ConfigError(f"mcts cannot play {name!r}: the game cannot draw deals that fit what a seat knows; take cfr")
    exploration, any_number, most_visited = 2.0, -1, pyspiel.ISMCTSFinalPolicyType.MAX_VISIT_COUNT

    def play(environment: Environment, seat: str, random: Random) -> str:
        state, seed = _state(environment), random.getrandbits(31)
        evaluator = pyspiel.RandomRolloutEvaluator(1, random.getrandbits(31))
        if is_perfect:
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


def _said(state: Any, action: int) -> str:
    """An action as the environment reads it."""
    seat = state.current_player()
    named = named_actions((number, state.action_to_string(seat, number)) for number in state.legal_actions())
    return next(text for text, number in named.items() if number == action)
