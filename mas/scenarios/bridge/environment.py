"""A bridged game with measures, and if wanted in single characters: one for each action, one for each seat."""

import re
import string
from collections.abc import Mapping
from typing import Self

import msgspec

from mas.core.environment import EnvironmentSpec, Observation, Step, Task
from mas.core.errors import EnvironmentFault
from mas.core.seeds import digest
from mas.scenarios.bridges.game import GameEnvironment

SYMBOLS = string.digits + string.ascii_lowercase + string.ascii_uppercase
"""Characters that stand for actions 0, 1, 2, ..."""
SEATS = string.ascii_uppercase
"""Characters that stand for the first seat, the second, ..."""


class _State(msgspec.Struct, frozen=True):
    seed: int
    paid: float
    illegal: int
    game: bytes


class BridgedGame:
    """Seats, views, terms and rules of the game. In letters a view's `seat` is A, B, ..., `seen` has no white space,
    and `legal` has the characters of the legal actions, which are the actions then: action number n is `SYMBOLS[n]`.
    """

    def __init__(self, game: GameEnvironment, *, is_lettered: bool) -> None:
        self.game, self._is_lettered = game, is_lettered
        self.spec: EnvironmentSpec = game.spec
        self._seed, self._paid, self._illegal = 0, 0.0, 0

    def reset(self, task: Task) -> None:
        self.game.reset(task)
        self._seed, self._paid, self._illegal = task.seed, 0.0, 0

    def to_move(self) -> tuple[str, ...]:
        return self.game.to_move()

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

    def step(self, actions: Mapping[str, str]) -> Step:
        said = {seat: self._text(seat, action) for seat, action in actions.items()}
        step = self.game.step(said)
        self._illegal += len(step.illegal)
        self._paid += sum(step.rewards[self.spec.seats[0]].values())
        return step

    def success(self) -> bool:
        return self.game.success()

    def measures(self) -> Mapping[str, float]:
        """`payoff` of the first seat, `forfeit`: a seat lost by it, `illegal`: moves."""
        forfeit = bool(self.game.forfeited())
        return {"payoff": self._paid, "forfeit": float(forfeit), "illegal": float(self._illegal)}

    def clone(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, game=self.game.clone())
        return twin

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(_State(self._seed, self._paid, self._illegal, self.game.snapshot()))

    def restore(self, state: bytes) -> None:
        try:
            found = msgspec.msgpack.decode(state, type=_State)
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of {self.spec.name}: {error}") from error
        self.game.restore(found.game)
        self._seed, self._paid, self._illegal = found.seed, found.paid, found.illegal

    def state_key(self) -> str:
        return digest(self.game.state_key(), self._seed)

    def render(self) -> str:
        return self.game.render()

    def _text(self, seat: str, action: str) -> str:
        """The action as the game calls it; what stands for none is handed on, for the game to refuse."""
        if not self._is_lettered or not action:
            return action
        found = {SYMBOLS[number]: text for text, number in self.game.numbers(seat).items()}
        return found.get(action, f"no action {action[:20]!r}")


def squeezed(seen: str) -> str:
    """Without quotes, and without white space: `/` for the end of a line, `_` for blanks."""
    lines = (re.sub(r"[ \t]+", "_", line.strip()) for line in re.sub(r"['\"`]", "", seen).splitlines())
    return "/".join(line for line in lines if line)
