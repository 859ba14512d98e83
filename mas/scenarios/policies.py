"""Players that need no model: one that knows the rules alone, and the best that is known."""

from collections.abc import Callable, Mapping
from random import Random

from mas.core.environment import Environment
from mas.core.scenario import Scenario

Policy = Callable[[Environment, Random], Mapping[str, str] | None]
"""What each seat that must move does, drawing from a generator; None: it cannot tell."""


def random_policy(environment: Environment, random: Random) -> Mapping[str, str] | None:
    """Draws uniformly among the legal actions of each seat, an empty text where it has none. None: they cannot be
    listed."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat)
        if legal is None:
            return None
        actions[seat] = random.choice(legal) if legal else ""
    return actions


def expert_of(scenario: Scenario) -> Policy | None:
    """The scenario's attribute `expert`, as `FolderScenario` has it. None: nobody wrote one."""
    expert: Policy | None = getattr(scenario, "expert", None)
    return expert
