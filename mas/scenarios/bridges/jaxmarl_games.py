"""JaxMARL's environments that are tested: what holds for each.

Left out: one agent alone (`MPE_simple`), continuous actions (`ant_4x2` and others of MABrax, which need brax, too),
vectors of distances that no name makes readable (`jaxnav`), other packages' (`JaxRobotarium`), an enemy that has to be
handed in (`LearnedPolicyEnemySMAX`), payoffs of a million, as colours count to 255 (`MPE_simple_crypto`), larger
variants of what is here (`MPE_simple_world_comm`, `MPE_simple_facmac`, `storm`, `storm_np`, `overcooked_v2`) and
`hanabi`, which is `open_spiel:hanabi`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from mas.scenarios.bridges.jaxmarl_texts import (
    PUSHES,
    Battle,
    CoinGame,
    JaxMarlText,
    ObservationPart,
    Overcooked,
    Particles,
    Storm,
    SwitchRiddle,
)
from mas.scenarios.game_rules import BridgeRules


@dataclass(frozen=True, slots=True, kw_only=True)
class JaxMarlGame(BridgeRules):
    """An environment in which all agents move at once."""

    name: str = ""
    text: JaxMarlText
    dynamics: Literal["sequential", "simultaneous"] = "simultaneous"


def _agents(count: int, name: str = "agent") -> tuple[str, ...]:
    return tuple(f"{name}_{number}" for number in range(count))


def _places(*names: str) -> tuple[ObservationPart, ...]:
    return tuple(ObservationPart(name, 2) for name in names)


_OWN = _places("velocity", "position")
_SPREAD = tuple(
    # What the others say comes last, and nobody can speak.
    (*_OWN, *_places("landmark 0", "landmark 1", "landmark 2", *others), ObservationPart("", 4))
    for others in (("agent_1", "agent_2"), ("agent_0", "agent_2"), ("agent_0", "agent_1"))
)
_LANDMARKS = _places("landmark 0", "landmark 1")
_TAG_SEATS = (*_agents(3, "adversary"), "agent_0")
_TAG = tuple(
    (
        *_OWN,
        *_LANDMARKS,
        *_places(*(name for name in _TAG_SEATS if name != seat)),
        *(() if seat == "agent_0" else _places("velocity of agent_0")),
    )
    for seat in _TAG_SEATS
)
_SAYS = tuple(f"say {word}" for word in range(10))
_COLOUR = 3
_KITCHENS = ("cramped_room", "asymm_advantages", "coord_ring", "forced_coord", "counter_circuit")
# The farthest that an agent which does not collide can be from a landmark on one axis, summed over 26 decisions, is
# 103.8 (it starts at 1, the landmark is at -1, every push adds 0.5 to three quarters of its velocity, and a step moves
# it by a tenth of that); its squares sum to 464.4. On both axes: the square root of 2 times as far, twice the squares.
_FAR, _FAR_SQUARED = -147.0, -929.0

GAMES: Mapping[str, JaxMarlGame] = MappingProxyType(
    {
        # Collisions push without a limit, so that the floor is a guess: 26 decisions at 20, which is far off the map.
        "MPE_simple_spread_v3": JaxMarlGame(
            text=Particles(_SPREAD), seats=_agents(3), payoff="free", floor=-520, longest=26
        ),
        "MPE_simple_speaker_listener_v4": JaxMarlGame(
            text=Particles(
                (
                    (ObservationPart("goal", 3, "choice"),),
                    (
                        *_places("velocity", "landmark 0", "landmark 1", "landmark 2"),
                        ObservationPart("heard", 3, "choice"),
                    ),
                ),
                (_SAYS[:3], PUSHES),
            ),
            seats=("speaker_0", "listener_0"),
            payoff="shared",
            floor=_FAR_SQUARED,
            longest=26,
        ),
        "MPE_simple_reference_v3": JaxMarlGame(
            text=Particles(
                2
                * (
                    (
                        *_places("velocity", "landmark 0", "landmark 1", "landmark 2"),
                        ObservationPart("the other's goal", _COLOUR, "choice"),
                        ObservationPart("heard", 10, "choice"),
                    ),
                ),
                2 * (tuple(f"{push}, {word}" for word in _SAYS for push in PUSHES),),
            ),
            seats=_agents(2),
            payoff="free",
            floor=_FAR,
            longest=26,
        ),
        # Three catches a decision cost 30, and being off the map on both axes 20.
        "MPE_simple_tag_v3": JaxMarlGame(
            text=Particles(_TAG), seats=_TAG_SEATS, payoff="free", floor=-1300, longest=26
        ),
        "MPE_simple_adversary_v3": JaxMarlGame(
            text=Particles(
                (
                    (*_LANDMARKS, *_places("agent_0", "agent_1")),
                    (*_places("goal"), *_LANDMARKS, *_places("adversary_0", "agent_1")),
                    (*_places("goal"), *_LANDMARKS, *_places("adversary_0", "agent_0")),
                )
            ),
            seats=("adversary_0", "agent_0", "agent_1"),
            payoff="free",
            floor=_FAR,
            longest=26,
        ),
        # Collisions here, too.
        "MPE_simple_push_v3": JaxMarlGame(
            text=Particles(
                (
                    (*_places("velocity"), *_LANDMARKS, *_places("agent_0")),
                    # Its own colour is in the second or the third entry, and the landmarks' colours never change.
                    (
                        *_places("velocity", "goal"),
                        ObservationPart("", 1),
                        ObservationPart("goal landmark", 2, "choice"),
                        *_LANDMARKS,
                        ObservationPart("", 6),
                        *_places("adversary_0"),
                    ),
                )
            ),
            seats=("adversary_0", "agent_0"),
            payoff="free",
            floor=-520,
            longest=26,
        ),
        "switch_riddle": JaxMarlGame(text=SwitchRiddle(), seats=_agents(3), payoff="shared", floor=-1, longest=6),
        # Ten rounds of ten decisions, of which the last pays nothing; a coin that the other takes costs 2.
        "coin_game": JaxMarlGame(text=CoinGame(), seats=_agents(2, "player"), payoff="free", floor=-180, longest=100),
        "storm_2p": JaxMarlGame(text=Storm(), seats=_agents(2, "player"), payoff="free", floor=0, longest=152),
        **{
            f"overcooked/{kitchen}": JaxMarlGame(
                text=Overcooked(), seats=_agents(2), payoff="shared", floor=0, longest=400
            )
            for kitchen in _KITCHENS
        },
        # The time is up after 100 decisions, which is noticed at the next.
        "SMAX/3m": JaxMarlGame(
            text=Battle(3, 3), seats=(*_agents(3, "ally"), *_agents(3, "enemy")), payoff="free", floor=0, longest=101
        ),
        "HeuristicEnemySMAX/3m": JaxMarlGame(
            text=Battle(3, 3), seats=_agents(3, "ally"), payoff="shared", floor=0, longest=101
        ),
        "HeuristicEnemySMAX/2s3z": JaxMarlGame(
            text=Battle(5, 5), seats=_agents(5, "ally"), payoff="shared", floor=0, longest=101
        ),
    }
)
"""Id -> environment."""
