"""Guests: who plays a seat of the game that the team leaves to others."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from mas.core.environment import Environment
from mas.core.together import together

Guest = Callable[[Environment, int], Awaitable[str]]
"""The action of its seat as text, in a world that is not to be changed, in the team turn of this number."""
Guests = Mapping[str, Guest]
"""Seat -> who plays it."""
NO_GUESTS: Guests = MappingProxyType({})


async def guest_actions(guests: Guests, moving: Iterable[str], environment: Environment, turn: int) -> dict[str, str]:
    """What guests do in a step, seat by seat; they see it as it begins, as all do who move at once."""
    seats = [seat for seat in moving if seat in guests]
    said = await together([guests[seat](environment, turn) for seat in seats], "guest") if seats else []
    return dict(zip(seats, said, strict=True))
