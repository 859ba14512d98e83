"""Gymnasium's environments that are tested, and how environments read: what a player sees, and actions as words."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from mas.core.errors import ConfigError

_MOST = 200
"""Numbers of an observation that are written out."""
_COLOURED, _COLOUR = re.compile(r"\x1b\[[1-9][0-9;]*m(.*?)\x1b\[0?m"), re.compile(r"\x1b\[[0-9;]*m")


class GymnasiumText(Protocol):
    """How an environment reads."""

    def seen(self, environment: Any, observation: Any) -> str:
        """What the player sees after a step or a reset."""

    def word(self, environment: Any, action: int) -> str:
        """What an action is called."""


class FrozenLake:
    """The map, with the player's place marked."""

    def seen(self, environment: Any, observation: Any) -> str:
        world = environment.unwrapped
        row, column = divmod(int(observation), world.ncol)
        cells = [[cell.decode() for cell in line] for line in world.desc.tolist()]
        cells[row][column] = "Y"
        return "\n".join(["".join(line) for line in cells] + ["Y you, F ice, H hole, G goal"])

    def word(self, environment: Any, action: int) -> str:
        return ("left", "down", "right", "up")[action]


class CliffWalking:
    """The grid, with the player's place marked."""

    def seen(self, environment: Any, observation: Any) -> str:
        row, column = divmod(int(observation), 12)
        cells = [["."] * 12 for _ in range(4)]
        cells[3][1:] = ["C"] * 10 + ["G"]
        cells[row][column] = "Y"
        return "\n".join(["".join(line) for line in cells] + ["Y you, C cliff, G goal"])

    def word(self, environment: Any, action: int) -> str:
        return ("up", "right", "down", "left")[action]


class Taxi:
    """The map with its walls, and where taxi and passenger are."""

    def seen(self, environment: Any, observation: Any) -> str:
        world = environment.unwrapped
        row, column, passenger, destination = (int(part) for part in world.decode(int(observation)))
        lines = [b"".join(line).decode() for line in world.desc.tolist()]
        waits = f"is at {self._place(world, passenger)}" if passenger < len(world.locs) else "is in the taxi"
        return "\n".join(
            [
                *lines,
                f"The taxi is at row {row}, column {column}.",
                f"The passenger {waits} and goes to {self._place(world, destination)}.",
            ]
        )

    def word(self, environment: Any, action: int) -> str:
        return ("south", "north", "east", "west", "pickup", "dropoff")[action]

    def _place(self, world: Any, number: int) -> str:
        row, column = world.locs[number]
        return f"{'RGYB'[number]}, row {row}, column {column}"


class Blackjack:
    """The sum of the player's cards, and the dealer's open card."""

    def seen(self, environment: Any, observation: Any) -> str:
        total, dealer, ace = (int(part) for part in observation)
        return f"Your cards: {total}. Usable aces: {ace}.\nThe dealer shows {dealer}, where 1 is an ace."

    def word(self, environment: Any, action: int) -> str:
        return ("stick", "hit")[action]


class Described:
    """Any other environment: what it renders as text, or else its observation in words.

    What is rendered in colour stands in brackets: it is mostly the player. An action has the word that `action_words`
    of the environment, or its `get_action_meanings()`, gives it, or else its number.
    """

    def seen(self, environment: Any, observation: Any) -> str:
        if environment.render_mode == "ansi":
            return _COLOUR.sub("", _COLOURED.sub(r"[\1]", _text(environment.render()))).strip("\n")
        return in_words(observation)

    def word(self, environment: Any, action: int) -> str:
        world = environment.unwrapped
        words = getattr(world, "action_words", None)
        if words is None and callable(meanings := getattr(world, "get_action_meanings", None)):
            words = meanings()
        return str(words[action - int(environment.action_space.start)]) if words is not None else str(action)


def _text(rendered: Any) -> str:
    if hasattr(rendered, "getvalue"):
        rendered = rendered.getvalue()
    return "\n".join(map(str, rendered)) if isinstance(rendered, list | tuple) else str(rendered)


def in_words(observation: Any, name: str = "") -> str:
    """An observation as text: a text as it is, numbers, and one line for each named part.

    Raises:
        ConfigError: it has more than 200 numbers in one part, such as a picture.
    """
    if isinstance(observation, Mapping):
        return "\n".join(in_words(part, f"{name}.{key}" if name else str(key)) for key, part in observation.items())
    if isinstance(observation, tuple | list) and any(hasattr(part, "__len__") for part in observation):
        parts = {str(number): part for number, part in enumerate(observation)}
        return in_words(parts, name)
    if (size := getattr(observation, "size", 1)) > _MOST:
        raise ConfigError(
            f"an observation of {size} numbers is no text to read: give the environment the render mode 'ansi', or a "
            "wrapper that returns a text"
        )
    if hasattr(observation, "tolist"):
        observation = observation.tolist()
    value = observation if isinstance(observation, str) else re.sub(r"[\[\]'(),]+", " ", str(observation))
    value = value if isinstance(observation, str) else " ".join(value.split())
    return f"{name}: {value}" if name else value


@dataclass(frozen=True, slots=True, kw_only=True)
class GymnasiumGame:
    """What holds for a tested environment.

    Attributes:
        worst: the least that one step pays; 0 where only the last one pays.
        floor: the least that an episode pays; None: `worst` in each step.
        longest: decisions after which it is over, whatever Gymnasium says.
        slippery: the default of its option `is_slippery`, without which it has no chance; None: it has no such option.
        is_solved_at_end: whether reaching the end is success; else a total above zero is.
    """

    text: GymnasiumText
    worst: float = 0.0
    floor: float | None = None
    longest: int
    slippery: bool | None = None
    is_solved_at_end: bool = False


_ICE = GymnasiumGame(text=FrozenLake(), longest=100, slippery=True)
_WALK = GymnasiumGame(text=CliffWalking(), worst=-100, longest=100, slippery=False, is_solved_at_end=True)
GAMES: Mapping[str, GymnasiumGame] = MappingProxyType(
    {
        "FrozenLake-v1": _ICE,
        "FrozenLake8x8-v1": replace(_ICE, longest=200),
        "Taxi-v4": GymnasiumGame(text=Taxi(), worst=-1, longest=200, is_solved_at_end=True),
        "Blackjack-v1": GymnasiumGame(text=Blackjack(), floor=-1, longest=20),
        "CliffWalking-v1": _WALK,
        "CliffWalkingSlippery-v1": replace(_WALK, slippery=True),
    }
)
"""Tested with Gymnasium 1.3 and 1.4; all are of its folder `toy_text`."""
