"""A bridged game with measures, and if wanted in single characters: one for each action, one for each seat."""

import re
import string
from collections.abc import Mapping

from mas.core.environment import Observation
from mas.scenarios.bridges.game import GameEnvironment
from mas.scenarios.wrapped import TalliedGame

SYMBOLS = string.digits + string.ascii_lowercase + string.ascii_uppercase
"""Characters that stand for actions 0, 1, 2, ..."""
SEATS = string.ascii_uppercase
"""Characters that stand for the first seat, the second, ..."""


class BridgedGame(TalliedGame):
    """Seats, views, terms and rules of the game. In letters a view's `seat` is A, B, ..., `seen` has no white space,
    and `legal` has the characters of the legal actions, which are the actions then: action number n is `SYMBOLS[n]`.
    """

    def __init__(self, game: GameEnvironment, *, is_lettered: bool) -> None:
        super().__init__(game.spec, game)
        self._is_lettered = is_lettered

    def observe(self, view: str) -> Observation:
        fields = self.game.observe(view).fields
        if not self._is_lettered:
            return Observation(fields)
        seat = SEATS[self.spec.seats.index(view)]
        return Observation(
            {**fields, "seat": seat, "seen": squeezed(fields["seen"]), "legal": "".join(self.legal(view))}
        )

    def legal(self, seat: str) -> tuple[str, ...]:
        numbers = self.game.numbers(seat)
        return tuple(SYMBOLS[number] for number in numbers.values()) if self._is_lettered else tuple(numbers)

    def measures(self) -> Mapping[str, float]:
        """`payoff` of the first seat, `forfeit`: a seat lost by it, `illegal`: moves."""
        forfeit = bool(self.game.forfeited())
        return {"payoff": self.record.paid, "forfeit": float(forfeit), "illegal": float(self.record.illegal)}

    def text_of(self, seat: str, action: str) -> str:
        if not self._is_lettered or not action:
            return action
        found = {SYMBOLS[number]: text for text, number in self.game.numbers(seat).items()}
        return found.get(action, f"no action {action[:20]!r}")


def squeezed(seen: str) -> str:
    """Without quotes, and without white space: `/` for the end of a line, `_` for blanks."""
    lines = (re.sub(r"[ \t]+", "_", line.strip()) for line in re.sub(r"['\"`]", "", seen).splitlines())
    return "/".join(line for line in lines if line)
