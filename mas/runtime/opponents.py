"""Opponents: policies that play the seats of a game that the team leaves to others."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from mas.core.environment import Environment
from mas.core.together import together

OpponentPolicy = Callable[[Environment, int], Awaitable[str]]
"""The action of its seat as text, in a world that is not to be changed, in the team turn of this number."""
OpponentPolicies = Mapping[str, OpponentPolicy]
"""Seat -> its policy."""
NO_OPPONENTS: OpponentPolicies = MappingProxyType({})


async def opponent_actions(
    opponents: OpponentPolicies, moving: Iterable[str], environment: Environment, turn: int
) -> dict[str, str]:
    """What opponents do in a step, seat by seat; they see it as it begins, as all do who move at once."""
    seats = [seat for seat in moving if seat in opponents]
    said = await together([opponents[seat](environment, turn) for seat in seats], "opponent") if seats else []
    return dict(zip(seats, said, strict=True))
