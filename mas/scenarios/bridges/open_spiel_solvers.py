"""How far a policy is from unbeatable, by OpenSpiel's own solvers: for games small enough to be walked through."""

from collections.abc import Callable, Mapping
from typing import Any

from mas.core.errors import ConfigError
from mas.scenarios.bridges.open_spiel import EXTRA, legal_actions, load_game
from mas.scenarios.bridges.packages import load_package

Policy = Callable[[str, tuple[str, ...]], Mapping[str, float]]
"""(what the seat that moves sees, its legal actions) -> probabilities of these; what is left out has none."""

TOLERANCE = 1e-6
"""By how much probabilities may miss the sum of 1."""


def nash_conv(name: str, policy: Policy) -> float:
    """What all seats together could gain if each answered the others' policy as well as possible.

    NashConv = sum over seats i of (max over own policies of u_i - u_i); 0 is a Nash equilibrium. In a two-player
    zero-sum game half of it is the exploitability. The policy plays every seat.

    Args:
        name: a game as `mas.scenarios.bridges.open_spiel.open_environment` takes it, with information states (Kuhn or
            Leduc poker, matrix games); the policy sees these: what the bridge's `seen` field shows where information is
            imperfect.

    Raises:
        ConfigError: no such game, one that this cannot be computed for, or probabilities that are not.
    """
    game, pyspiel = load_game(name), load_package("pyspiel", EXTRA)
    kind = game.get_type()
    dynamics = pyspiel.GameType.Dynamics
    if kind.dynamics not in (dynamics.SEQUENTIAL, dynamics.SIMULTANEOUS) or not kind.provides_information_state_string:
        raise ConfigError(f"{name!r} has no NashConv here: it needs information states")
    if kind.dynamics == dynamics.SIMULTANEOUS:
        game = pyspiel.convert_to_turn_based(game)
    policies = load_package("open_spiel.python.policy", EXTRA)
    table = policies.TabularPolicy(game)
    for state in table.states:
        row = table.policy_for_key(state.information_state_string())
        row[:] = _row(state, policy, len(row))
    return float(load_package("open_spiel.python.algorithms.exploitability", EXTRA).nash_conv(game, table))


def _row(state: Any, policy: Policy, size: int) -> list[float]:
    """A policy's probabilities at one state, by number of the action."""
    seat, seen = state.current_player(), state.information_state_string()
    legal = legal_actions(state, seat)
    # A game made turn-based says first who moves, which a player of the original does not see.
    said = policy(seen.removeprefix(f"Current player: {seat}\n"), tuple(legal))
    if not set(said) <= set(legal) or min(said.values(), default=0) < 0 or abs(sum(said.values()) - 1) > TOLERANCE:
        raise ConfigError(f"{dict(said)} are no probabilities of {list(legal)}, at {seen!r}")
    row = [0.0] * size
    for text, probability in said.items():
        row[legal[text]] = probability
    return row
