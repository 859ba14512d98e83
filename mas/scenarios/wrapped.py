"""Environments around another one: whatever they add to the state of the game is one frozen record.

With that, `clone`, `snapshot` and `restore` are written once, and nothing can be left out of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, Self, TypeVar

import msgspec

from mas.core.environment import Environment, EnvironmentSpec, Step, Task
from mas.core.errors import EnvironmentFault
from mas.core.naming import digest
from mas.scenarios.bridges.game import GameEnvironment

Record = TypeVar("Record", bound=msgspec.Struct)
Game = TypeVar("Game", bound=Environment)


class GameWrapper(Generic[Game, Record]):
    """A game and the record beside it."""

    record_type: ClassVar[type[msgspec.Struct]]

    def __init__(self, spec: EnvironmentSpec, game: Game, record: Record) -> None:
        self.spec, self.game, self.record = spec, game, record

    def game_for(self, record: Record) -> Game:
        """The game that a snapshot with this record is of."""
        return self.game

    def clone(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__, game=self.game.clone())
        return twin

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode((self.record, self.game.snapshot()))

    def restore(self, state: bytes) -> None:
        try:
            record, inner = msgspec.msgpack.decode(state, type=tuple[self.record_type, bytes])  # type: ignore[name-defined]
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of {self.spec.name}: {error}") from error
        game = self.game_for(record)
        game.restore(inner)
        self.game, self.record = game, record

    def render(self) -> str:
        return self.game.render()


class GameTally(msgspec.Struct, frozen=True):
    """Of a game so far: its seed, what the first seat was paid, and illegal moves."""

    seed: int = 0
    paid: float = 0.0
    illegal: int = 0


class TalliedGame(GameWrapper[GameEnvironment, GameTally], ABC):
    """A bridged game that may be shown otherwise: `text_of` says what an action means in the game."""

    record_type = GameTally

    def __init__(self, spec: EnvironmentSpec, game: GameEnvironment) -> None:
        super().__init__(spec, game, GameTally())

    @abstractmethod
    def text_of(self, seat: str, action: str) -> str:
        """The action as the game calls it; what stands for none is handed on, for the game to refuse."""

    def reset(self, task: Task) -> None:
        self.record = GameTally(task.seed)
        self.game = self.game_for(self.record)
        self.game.reset(task)

    def to_move(self) -> tuple[str, ...]:
        return self.game.to_move()

    def step(self, actions: Mapping[str, str]) -> Step:
        step = self.game.step({seat: self.text_of(seat, action) for seat, action in actions.items()})
        paid = self.record.paid + sum(step.rewards[self.spec.seats[0]].values())
        self.record = GameTally(self.record.seed, paid, self.record.illegal + len(step.illegal))
        return step

    def success(self) -> bool:
        """Whether the first seat has won."""
        return self.game.success()

    def state_key(self) -> str:
        return digest(self.game.state_key(), self.record.seed)
