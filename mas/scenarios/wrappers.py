"""Environments around another one: whatever they add to the state of the game is one frozen record.

With that, `clone`, `snapshot` and `restore` are written once, and nothing can be left out of them. `Against` is one
seat of a game, the others played by fixed policies: a team can be trained without opponents that learn.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from random import Random
from typing import ClassVar, Generic, Self, TypeVar

import msgspec

from mas.core.environment import Environment, EnvironmentSpec, Observation, Step, Task, measures_of
from mas.core.errors import EnvironmentFault
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed, digest
from mas.scenarios.game import GameEnvironment
from mas.scenarios.world import one_seat

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


class GameTotals(msgspec.Struct, frozen=True):
    """Of a game so far: its seed, what the first seat was paid, and illegal moves."""

    seed: int = 0
    paid: float = 0.0
    illegal: int = 0


class TranslatedGame(GameWrapper[GameEnvironment, GameTotals], ABC):
    """A bridged game that may be shown otherwise: `text_of` says what an action means in the game."""

    record_type = GameTotals

    def __init__(self, spec: EnvironmentSpec, game: GameEnvironment) -> None:
        super().__init__(spec, game, GameTotals())

    @abstractmethod
    def text_of(self, seat: str, action: str) -> str:
        """The action as the game calls it; what stands for none is handed on, for the game to refuse."""

    def reset(self, task: Task) -> None:
        self.record = GameTotals(task.seed)
        self.game = self.game_for(self.record)
        self.game.reset(task)

    def to_move(self) -> tuple[str, ...]:
        return self.game.to_move()

    def step(self, actions: Mapping[str, str]) -> Step:
        step = self.game.step({seat: self.text_of(seat, action) for seat, action in actions.items()})
        paid = self.record.paid + sum(step.rewards[self.spec.seats[0]].values())
        self.record = GameTotals(self.record.seed, paid, self.record.illegal + len(step.illegal))
        return step

    def success(self) -> bool:
        """Whether the first seat has won."""
        return self.game.success()

    def state_key(self) -> str:
        return digest(self.game.state_key(), self.record.seed)


Policy = Callable[[Environment, str, Random], str]
"""What a seat of a game does; the generator is new at each move and the same for the same task, move and seat."""


class _State(msgspec.Struct, frozen=True):
    """`moves`: steps of the game so far. `earned`: all rewards of the seat so far."""

    seed: int = 0
    moves: int = 0
    earned: float = 0.0


class Against(GameWrapper[Environment, _State]):
    """A game as one of its seats knows it.

    The team has the one seat `team`, and each of its views shows what that player sees. Whatever the others do between
    two moves of the seat is part of one step, and so is what the seat is paid for it.

    Args:
        game: not shared with anybody else; reset for each task.
        seat: which of the game's seats the team has.
        others: the policy of each other seat.
        views: names of the members that may look.
        solved: whether an episode counts as a success, asked when it is over; by default when the seat earned anything
            above 0: of a zero-sum game, when it won.
    """

    record_type = _State

    def __init__(
        self,
        game: Environment,
        seat: str,
        others: Mapping[str, Policy],
        views: tuple[str, ...],
        solved: Callable[["Against"], bool] = lambda played: played.earned > 0,
    ) -> None:
        seats = game.spec.seats
        if seat not in seats:
            raise EnvironmentFault(f"{game.spec.name} has no seat {seat!r}. {did_you_mean(seat, seats)}")
        missing = sorted(set(seats) - {seat} - set(others))
        if missing:
            raise EnvironmentFault(f"{game.spec.name}: nobody plays {', '.join(missing)}")
        spec = one_seat(game.spec.name, views, game.spec.max_turns, game.spec.terms)
        super().__init__(spec, game, _State())
        self.seat = seat
        self._others, self._solved = others, solved

    @property
    def earned(self) -> float:
        """All that the seat was paid so far."""
        return self.record.earned

    def reset(self, task: Task) -> None:
        self.game.reset(task)
        self.record = _State(task.seed)
        self._earn(self._until_mine({}))

    def to_move(self) -> tuple[str, ...]:
        return ("team",) if self.seat in self.game.to_move() else ()

    def observe(self, view: str) -> Observation:
        if view not in self.spec.views:
            raise EnvironmentFault(f"{self.spec.name} has no view {view!r}. {did_you_mean(view, self.spec.views)}")
        return self.game.observe(self.seat)

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self.game.legal(self.seat)

    def step(self, actions: Mapping[str, str]) -> Step:
        if not self.to_move():
            raise EnvironmentFault(f"{self.spec.name}: the episode is over, call reset(task) to begin another")
        if set(actions) != {"team"}:
            raise EnvironmentFault(f"{self.spec.name}: seats {sorted(actions)} acted, to move is 'team'")
        step = self._one(actions["team"])
        paid = self._until_mine(step.rewards.get(self.seat, {}))
        self._earn(paid)
        return Step(rewards={"team": paid}, illegal=("team",) if self.seat in step.illegal else ())

    def success(self) -> bool:
        return not self.game.to_move() and self._solved(self)

    def measures(self) -> Mapping[str, float]:
        return measures_of(self.game)

    def coming(self, seat: str) -> str:
        """What another seat does in this step. It looks ahead of the dice: for rewards and people, never for views."""
        return self._others[seat](
            self.game, seat, Random(derive_seed("opponent", self.record.seed, self.record.moves, seat))
        )

    def state_key(self) -> str:
        return digest(self.game.state_key(), self.record.seed, self.record.moves)

    def _earn(self, paid: Mapping[str, float]) -> None:
        self.record = msgspec.structs.replace(self.record, earned=self.record.earned + sum(paid.values()))

    def _one(self, mine: str | None) -> Step:
        """One step of the game; `mine` None: the seat does not move."""
        moving = self.game.to_move()
        actions = {seat: self.coming(seat) for seat in moving if seat != self.seat}
        if mine is not None:
            actions[self.seat] = mine
        self.record = msgspec.structs.replace(self.record, moves=self.record.moves + 1)
        return self.game.step({seat: actions[seat] for seat in moving})

    def _until_mine(self, paid: Mapping[str, float]) -> dict[str, float]:
        """Let the others move until the seat must, or the game is over; all that the seat is paid meanwhile."""
        total = dict(paid)
        while (moving := self.game.to_move()) and self.seat not in moving:
            for term, value in self._one(None).rewards.get(self.seat, {}).items():
                total[term] = total.get(term, 0.0) + value
        return total
