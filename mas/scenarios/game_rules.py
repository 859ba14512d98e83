"""What a source says about a game: the rules that hold for every play, the state between two decisions, and actions as
text and back, as games know their actions by number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeRules:
    """What holds for every play of a game.

    Attributes:
        payoff: `fixed`: all totals together are always `total` (0: zero-sum); `shared`: every seat has the same;
            `free`: neither.
        floor: the least that a seat can have in the end.
        longest: decisions after which the game is over at the latest, with what was paid until then.
        has_chance: whether the seed matters.
    """

    name: str
    seats: tuple[str, ...]
    payoff: Literal["fixed", "shared", "free"]
    floor: float
    longest: int
    total: float = 0.0
    has_chance: bool = True
    dynamics: Literal["sequential", "simultaneous"] = "sequential"

    def forfeit(self, totals: tuple[float, ...], losers: frozenset[int]) -> tuple[float, ...]:
        """Everybody's total when some seats forfeit, `totals` being what was paid until then.

        Who forfeits has the floor, or what it had where that is less: an environment need not know its floor, and to
        forfeit must never pay. Where payoffs are shared, so has everybody. Where their sum is fixed, the others
        share what is left of it equally; if nobody is left, all have the same part of the sum. Else the others keep
        what they have.
        """
        seats = len(self.seats)
        if self.payoff == "shared":
            return tuple(min(self.floor, had) for had in totals)
        if self.payoff == "free":
            return tuple(min(self.floor, had) if seat in losers else had for seat, had in enumerate(totals))
        if len(losers) == seats:
            return (self.total / seats,) * seats
        rest = (self.total - self.floor * len(losers)) / (seats - len(losers))
        return tuple(self.floor if seat in losers else rest for seat in range(seats))


class Position(Protocol):
    """A game's own state between two decisions. Seats are numbers, actions are numbers."""

    def to_move(self) -> tuple[int, ...]:
        """Seats that decide now; empty when the game is over."""

    def legal(self, seat: int) -> Mapping[str, int]:
        """What a seat that decides now may do: text -> action."""

    def seen(self, seat: int) -> str:
        """What this seat sees, and nothing else; asking changes nothing."""

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        """Everybody who decides now has chosen; `seed` is for chance until the next decision."""

    def totals(self) -> tuple[float, ...]:
        """What each seat was paid so far."""

    def clone(self) -> Self:
        """An equal, independent copy."""

    def render(self) -> str:
        """All of it, for people."""


class GameSource(Protocol):
    """A game and how it begins."""

    @property
    def rules(self) -> BridgeRules:
        """What holds for every play."""

    def actions(self) -> int:
        """How many actions there are; each number is below."""

    def begin(self, seed: int) -> Position:
        """The first decision; `seed` is for chance until then and for all that the game draws by itself."""


LONGEST_ACTION = 1000
"""Characters; no game has a longer action, and what is longer is not looked at."""


def named_actions(actions: Iterable[tuple[int, str]]) -> dict[str, int]:
    """Text -> number, from numbers with what the game calls them.

    White space is made single. Where a name is empty or two actions have the same, ` #NUMBER` is added to it; where
    that makes a name that another action has, to all.
    """
    named = [(number, _plain(name)) for number, name in actions]
    times = Counter(name for _, name in named)
    found = {name if name and times[name] == 1 else _numbered(number, name): number for number, name in named}
    return found if len(found) == len(named) else {_numbered(number, name): number for number, name in named}


def find_action(said: str, legal: Mapping[str, int]) -> int | None:
    """The legal action that was meant, None where none was.

    Tried in order: the text itself, with other white space, in other case where one action alone fits, `#NUMBER`, and
    the bare number where no action's text is itself a number.
    """
    if len(said) > LONGEST_ACTION:
        return None
    plain = _plain(said)
    if plain in legal:
        return legal[plain]
    alike = [number for text, number in legal.items() if text.casefold() == plain.casefold()]
    if alike:
        return alike[0] if len(alike) == 1 else None
    digits = plain.removeprefix("#")
    if not (digits.isascii() and digits.isdecimal()):
        return None
    if plain == digits and any(text.lstrip("+-").isdecimal() for text in legal):
        return None
    number = int(digits)
    return number if number in legal.values() else None


def _numbered(number: int, name: str) -> str:
    return f"{name} #{number}".strip()


def _plain(text: str) -> str:
    return " ".join(text.split())
