"""Players that need no model: they see a whole environment and follow rules."""

from collections.abc import Callable, Mapping
from random import Random

from mas.core.environment import Environment

Script = Callable[[Environment, Random], Mapping[str, str] | None]
"""What each seat that must move does, drawing from a generator; None: it cannot tell."""


def random_script(environment: Environment, random: Random) -> Mapping[str, str] | None:
    """Draws uniformly among the legal actions of each seat, an empty text where it has none. None: they cannot be
    listed."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat)
        if legal is None:
            return None
        actions[seat] = random.choice(legal) if legal else ""
    return actions
