"""Simple negotiation: two players, two resources, private values; the greater gain in value wins.

After TextArena's SimpleNegotiation, which SPIRAL (arXiv 2506.24119) trains on: each player knows its own value of each
resource only, turns alternate up to a fixed number, an offer can be accepted or denied in the next turn, and at the end
the player whose inventory has gained more in its own values wins, equal gains draw. Smaller here: two resources of two
units each where TextArena has five of 5 to 25 units, two values per resource, four offers, four turns, no free talk.
A player that offers does not accept in the same turn, and no offer is made in the last turn, where nobody could answer.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import product

RESOURCES = ("wheat", "ore")
START = (2, 2)
"""Units of each resource that each player begins with."""
VALUES = tuple(product((1, 2), (3, 4)))
"""What a unit of each resource can be worth to a player; each pair is as likely."""
TURNS = 4
"""Of both players together."""
DENY, ACCEPT, FIRST_OFFER = 0, 1, 2
"""Numbers of actions; `FIRST_OFFER` + i is `OFFERS[i]`."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Units of each resource that the player who offers gives, and those that it gets."""

    gives: tuple[int, ...]
    gets: tuple[int, ...]

    def __str__(self) -> str:
        return f"I give {listed_units(self.gives)}, you give {listed_units(self.gets)}"


OFFERS = (Offer((1, 0), (0, 1)), Offer((0, 1), (1, 0)), Offer((2, 0), (0, 1)), Offer((0, 1), (2, 0)))


@dataclass(frozen=True, slots=True)
class Bargain:
    """The state of a game after its deal.

    Attributes:
        values: of each player, what a unit of each resource is worth to it.
        units: of each player, of each resource.
        moves: numbers of the actions so far; the players take turns, player 0 begins.
    """

    values: tuple[tuple[int, ...], ...]
    units: tuple[tuple[int, ...], ...] = (START, START)
    moves: tuple[int, ...] = ()

    def __deepcopy__(self, memo: object) -> "Bargain":
        """Itself, as it never changes: OpenSpiel copies a state at every step of a walk through the game."""
        return self

    @property
    def player(self) -> int:
        return len(self.moves) % 2

    @property
    def offer(self) -> Offer | None:
        """What the other player has offered in the turn before."""
        return OFFERS[self.moves[-1] - FIRST_OFFER] if self.moves and self.moves[-1] >= FIRST_OFFER else None

    @property
    def is_over(self) -> bool:
        """Whether all turns are spent, or the last one has no offer to answer."""
        return len(self.moves) == TURNS or (len(self.moves) == TURNS - 1 and self.offer is None)

    def legal(self) -> list[int]:
        """Actions of the next player: nobody gives what it does not have."""
        own = self.units[self.player]
        actions = [DENY]
        if self.offer is not None and _has(own, self.offer.gets):
            actions.append(ACCEPT)
        if len(self.moves) < TURNS - 1:
            actions += [FIRST_OFFER + number for number, offer in enumerate(OFFERS) if _has(own, offer.gives)]
        return actions

    def after(self, action: int) -> "Bargain":
        """The state after a legal action."""
        units = self.units
        if action == ACCEPT:
            assert self.offer is not None
            gains = tuple(got - given for got, given in zip(self.offer.gives, self.offer.gets, strict=True))
            mine = tuple(had + gain for had, gain in zip(units[self.player], gains, strict=True))
            others = tuple(had - gain for had, gain in zip(units[1 - self.player], gains, strict=True))
            units = (mine, others) if self.player == 0 else (others, mine)
        return replace(self, units=units, moves=(*self.moves, action))

    def gain(self, player: int) -> int:
        """By how much the player's inventory has gained in the player's own values."""
        units = zip(self.values[player], self.units[player], START, strict=True)
        return sum(value * (has - had) for value, has, had in units)

    def payoff(self) -> int:
        """Of player 0: 1 if it has gained more, -1 if less, 0 if as much; player 1 is paid the opposite."""
        mine, others = self.gain(0), self.gain(1)
        return (mine > others) - (mine < others)

    def action_text(self, action: int) -> str:
        """What an action of the next player is called."""
        if action == DENY:
            return "No offer" if self.offer is None else "Deny"
        return "Accept" if action == ACCEPT else str(OFFERS[action - FIRST_OFFER])

    def seen(self, player: int) -> str:
        """All that a player knows: its own values, its units, and what was said so far."""
        return _seen(self.values[player], player, self.moves)


@cache
def _seen(values: tuple[int, ...], player: int, moves: tuple[int, ...]) -> str:
    """The game is played again for it, as nothing that is shown depends on the other's values."""
    state, said = Bargain((values, values)), list[str]()
    for action in moves:
        said.append(f"player_{state.player}: {state.action_text(action)}")
        state = state.after(action)
    worth = ", ".join(f"{name} {value}" for name, value in zip(RESOURCES, values, strict=True))
    return f"Worth to you: {worth}. You have {listed_units(state.units[player])}. So far: {'; '.join(said) or '-'}"


def listed_units(units: tuple[int, ...]) -> str:
    """`2 wheat and 1 ore`, without resources that there is nothing of."""
    return " and ".join(f"{count} {name}" for name, count in zip(RESOURCES, units, strict=True) if count) or "nothing"


def _has(units: tuple[int, ...], needed: tuple[int, ...]) -> bool:
    return all(has >= need for has, need in zip(units, needed, strict=True))
