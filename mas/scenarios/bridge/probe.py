"""What a few random games tell of a bridged game, and whether the tiny base could be taught its letters."""

import string
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.scenarios.bridge.environment import SEATS, SYMBOLS, squeezed
from mas.scenarios.bridge.teams import PROMPT
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.game import GameEnvironment, game_below

READABLE = string.digits + string.ascii_letters + " \n.,;:=<>()[]+-*/#?!_|"
"""The characters that the tiny base's tokenizer knows."""
_GAMES, _STEPS = 4, 200


@dataclass(frozen=True, slots=True)
class BridgeProbe:
    """`actions`: how many there are; `longest`: characters of a prompt; `unknown`: characters that are not readable."""

    actions: int
    longest: int
    unknown: frozenset[str]


@lru_cache(maxsize=256)
def probe(name: str) -> BridgeProbe:
    """Play a few random games; actions are then 0 where there are no numbers for them.

    Raises:
        ConfigError: as `open_bridge`.
    """
    game = open_bridge(name)
    if not isinstance(game, GameEnvironment) or game.game.actions() > len(SYMBOLS):
        return BridgeProbe(game.game.actions() if isinstance(game, GameEnvironment) else 0, 0, frozenset())
    random, longest, seen = Random(0), 0, set[str]()
    for seed in range(_GAMES):
        game.reset(Task(id="probe", seed=seed))
        for _ in range(_STEPS):
            moving = game.to_move()
            if not moving:
                break
            for seat in moving:
                text = squeezed(game.observe(seat).fields["seen"])
                longest, seen = max(longest, len(PROMPT.format(seat="A", seen=text))), seen | set(text)
            game.step({seat: random.choice(game.legal(seat) or ("",)) for seat in moving})
    return BridgeProbe(game.game.actions(), longest, frozenset(seen - set(READABLE)))


def check_letters(name: str, environment: Environment, probed: BridgeProbe) -> None:
    """Refuse what cannot be played in letters.

    Raises:
        ConfigError: says why, and what is possible.
    """
    instead = "Take scenario.options.style=words and a model that reads them, model.path=MODEL"
    why = None
    if game_below(environment) is None:
        why = "its actions are texts and have no numbers, so that there is no vocabulary to make a tiny base of"
    elif probed.actions > len(SYMBOLS):
        why = f"it has {probed.actions} actions, and there are {len(SYMBOLS)} characters to stand for them"
    elif len(environment.spec.seats) > len(SEATS):
        why = f"it has {len(environment.spec.seats)} seats, and there are {len(SEATS)} characters to stand for them"
    elif probed.unknown:
        why = f"its views have characters that the tiny base does not know: {' '.join(sorted(probed.unknown)[:20])}"
    if why is not None:
        raise ConfigError(f"{name} cannot be trained with style=letters: {why}. {instead}")
