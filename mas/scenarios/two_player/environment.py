"""A game with both seats open, in words or in single characters."""

from collections.abc import Iterable, Mapping
from typing import Literal, Self

import msgspec

from mas.core.environment import EnvironmentSpec, Observation, Step, Task
from mas.core.errors import EnvironmentFault
from mas.core.seeds import digest
from mas.scenarios.bridges.game import GameEnvironment
from mas.scenarios.bridges.open_spiel import open_environment
from mas.scenarios.two_player.games import Game

Style = Literal["letters", "words"]
MARKS = "AB"
"""What stands for the first and the second seat in letters."""


class _State(msgspec.Struct, frozen=True):
    seed: int
    paid: float
    illegal: int
    game: bytes


class TwoPlayerEnvironment:
    """Both seats of a game. Who makes no legal move `tries` times at one decision forfeits: it ends with the least that
    the game can pay, and the other one with as much above zero, so that the game stays zero-sum.

    Fields of a view: `seat`, `seen`, `legal` and `note` as `GameEnvironment` has them, and `rules`; in letters the seat
    is A or B, `seen` is short, and actions are single characters.
    """

    def __init__(self, game: Game, style: Style, tries: int) -> None:
        self.rules, self.style = game, style
        opened = open_environment(game.name)
        self.game = GameEnvironment(opened.game, tries=tries)
        inner = self.game.spec
        self.spec = EnvironmentSpec(
            name=game.name,
            seats=inner.seats,
            views=inner.views,
            max_turns=inner.max_turns,
            terms=inner.terms,
            dynamics=inner.dynamics,
        )
        self._seed, self._paid, self._illegal = 0, 0.0, 0

    def reset(self, task: Task) -> None:
        self.game.reset(task)
        self._seed, self._paid, self._illegal = task.seed, 0.0, 0

    def to_move(self) -> tuple[str, ...]:
        return self.game.to_move()

    def observe(self, view: str) -> Observation:
        fields = {"rules": self.rules.rules} | dict(self.game.observe(view).fields)
        if self.style == "letters":
            fields |= in_letters(self.rules, self.spec.seats.index(view), fields["seen"], self.legal(view))
        return Observation(fields)

    def legal(self, seat: str) -> tuple[str, ...]:
        legal = self.game.legal(seat) or ()
        return legal if self.style == "words" else tuple(self.rules.letter(text) for text in legal)

    def step(self, actions: Mapping[str, str]) -> Step:
        said = {seat: self._text(seat, action) for seat, action in actions.items()}
        step = self.game.step(said)
        self._illegal += len(step.illegal)
        self._paid += sum(step.rewards[self.spec.seats[0]].values())
        return step

    def success(self) -> bool:
        """Whether the first seat has won."""
        return self.game.success()

    def measures(self) -> Mapping[str, float]:
        """1 or 0 of the whole game: it was a `draw`, and a seat lost it by a `forfeit`; `illegal`: moves."""
        forfeit = bool(self.game.forfeited())
        return {"draw": float(self._paid == 0), "forfeit": float(forfeit), "illegal": float(self._illegal)}

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
        if self.style == "words":
            return action
        legal = {self.rules.letter(text): text for text in self.game.legal(seat) or ()}
        return legal.get(action, f"no action {action[:20]!r}" if action else "")


def in_letters(game: Game, seat: int, seen: str, letters: Iterable[str]) -> dict[str, str]:
    """The fields of a view that differ from those in words."""
    return {"seat": MARKS[seat], "seen": game.short(seen), "legal": "".join(letters)}
