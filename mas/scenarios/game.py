"""What the bridges to games share: any number of seats, moves in turn or at once, and a price for not moving.

The whole state is one frozen record: the seed, the actions so far, and what each seat has tried since. Chance follows
from the seed and the number of decisions, so the record can be played again, which is how it is restored. The game's
own state beside it is only a faster way to the same.

Somebody who does not move. An action that is not legal, and a pass (an empty text), change nothing in the game; the
same seat must move again, and the others, who moved at the same time, have moved. The `tries`-th such turn at one
decision forfeits the game: see `BridgeRules.forfeit`.
"""

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from mas.core.environment import Environment, EnvironmentSpec, Observation, Step, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed, digest
from mas.scenarios.game_rules import GameSource, Position, find_action

TERM = "payoff"


class GameState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole state.

    Attributes:
        seed: of chance, 0 in a game without.
        moves: the actions of every decision, in the order of the seats that decided.
        chosen: actions by seat of those who have moved while others must try again.
        misses: per seat, turns without a legal action at this decision.
    """

    game: str
    seed: int
    moves: tuple[tuple[int, ...], ...]
    chosen: dict[int, int]
    misses: tuple[int, ...]


class GameEnvironment:
    """A game of another package. `tries`: turns without a legal action at one decision that forfeit the game.

    Fields of a view: `seat` (its name), `seen`, `legal` (one action per line, empty while others move) and `note` (how
    many tries are left, empty before the first miss). The one term is `payoff`: what a seat's total changed by, for
    every seat in every step. `success` is the first seat's: the game is over and its total is above zero, or, of a
    position that has the method `solved`, what that says.
    """

    def __init__(self, game: GameSource, *, tries: int = 3) -> None:
        if tries < 1:
            raise ConfigError(f"tries={tries} leaves nobody a move: it must be 1 or more")
        rules = game.rules
        self.game, self.rules, self.tries = game, rules, tries
        self.spec = EnvironmentSpec(
            name=rules.name,
            seats=rules.seats,
            views=rules.seats,
            max_turns=rules.longest * tries,
            terms=(TERM,),
            dynamics=rules.dynamics,
        )
        self._state: GameState | None = None
        self._position: Position | None = None
        self._legal: dict[int, Mapping[str, int]] = {}

    @property
    def state(self) -> GameState:
        """The current record.

        Raises:
            EnvironmentFault: before the first reset.
        """
        if self._state is None:
            raise EnvironmentFault(f"{self.rules.name} was not reset: call reset(task) first")
        return self._state

    @property
    def position(self) -> Position:
        """The game's own state, not to be changed.

        Raises:
            EnvironmentFault: before the first reset.
        """
        if self._position is None:
            raise EnvironmentFault(f"{self.rules.name} was not reset: call reset(task) first")
        return self._position

    def reset(self, task: Task) -> None:
        self._begin(task.seed if self.rules.has_chance else 0)

    def to_move(self) -> tuple[str, ...]:
        return tuple(self.spec.seats[seat] for seat in self._moving())

    def observe(self, view: str) -> Observation:
        seat = self._number(view)
        moves = seat in self._moving()
        misses = self.state.misses[seat]
        note = f"No legal action yet. Tries left before you lose: {self.tries - misses}." if misses else ""
        return Observation(
            {
                "seat": view,
                "seen": self.position.seen(seat),
                "legal": "\n".join(self._legal_of(seat)) if moves else "",
                "note": note if moves else "",
            }
        )

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return tuple(self.numbers(seat))

    def numbers(self, seat: str) -> Mapping[str, int]:
        """A seat's legal actions by their text, with the game's numbers; empty while others move."""
        number = self._number(seat)
        return self._legal_of(number) if number in self._moving() else {}

    def meant(self, seat: str, said: str) -> str | None:
        """The legal action that a text stands for, as `step` reads it; None: it stands for none."""
        legal = self.numbers(seat)
        number = find_action(said, legal)
        return next((text for text, action in legal.items() if action == number), None)

    def step(self, actions: Mapping[str, str]) -> Step:
        moving = self._moving()
        if not moving:
            raise EnvironmentFault(f"{self.rules.name}: the game is over, call reset(task) to begin another")
        names = {self.spec.seats[seat]: seat for seat in moving}
        if set(actions) != set(names):
            raise EnvironmentFault(f"{self.rules.name}: seats {sorted(actions)} acted, to move are {sorted(names)}")
        before = self._totals()
        found = {seat: find_action(actions[name], self._legal_of(seat)) for name, seat in names.items()}
        missed = [seat for seat in moving if found[seat] is None]
        self._take({seat: action for seat, action in found.items() if action is not None}, missed)
        paid = zip(self.spec.seats, before, self._totals(), strict=True)
        return Step(
            rewards={name: {TERM: after - had} for name, had, after in paid},
            illegal=tuple(name for name, seat in names.items() if seat in missed and actions[name]),
        )

    def success(self) -> bool:
        if self._moving():
            return False
        solved = getattr(self.position, "solved", None)
        return self._totals()[0] > 0 if solved is None or self._losers() else solved()

    def clone(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._position = self.position.clone()
        return twin

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self.state)

    def restore(self, state: bytes) -> None:
        try:
            record = msgspec.json.decode(state, type=GameState)
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of {self.rules.name}: {error}") from error
        twin = type(self)(self.game, tries=self.tries)
        twin._replay(record)
        self.__dict__.update(twin.__dict__)

    def state_key(self) -> str:
        return digest(self.snapshot().decode())

    def render(self) -> str:
        state = self.state
        waiting = [f"{self.spec.seats[seat]} has moved" for seat in state.chosen]
        lost = [f"{seat} forfeits" for seat in self.forfeited()]
        return "\n".join([self.position.render(), *waiting, *lost])

    def forfeited(self) -> tuple[str, ...]:
        """Seats that have spent all their tries at the last decision; the game is over if there is one."""
        return tuple(self.spec.seats[seat] for seat in sorted(self._losers()))

    def _number(self, name: str) -> int:
        if name not in self.spec.seats:
            raise EnvironmentFault(f"{self.rules.name} has no seat {name!r}. {did_you_mean(name, self.spec.seats)}")
        return self.spec.seats.index(name)

    def _begin(self, seed: int) -> None:
        misses = (0,) * len(self.spec.seats)
        self._state = GameState(self.rules.name, seed, (), {}, misses)
        self._position = self.game.begin(derive_seed(seed, 0))
        self._legal = {}

    def _losers(self) -> frozenset[int]:
        misses = self.state.misses
        if not any(misses):
            return frozenset()
        return frozenset(seat for seat, missed in enumerate(misses) if missed >= self.tries)

    def _moving(self) -> tuple[int, ...]:
        state = self.state
        if len(state.moves) >= self.rules.longest or self._losers():
            return ()
        return tuple(seat for seat in self.position.to_move() if seat not in state.chosen)

    def _legal_of(self, seat: int) -> Mapping[str, int]:
        if seat not in self._legal:
            self._legal = {**self._legal, seat: self.position.legal(seat)}
        return self._legal[seat]

    def _totals(self) -> tuple[float, ...]:
        totals, losers = self.position.totals(), self._losers()
        return self.rules.forfeit(totals, losers) if losers else totals

    def _take(self, found: Mapping[int, int], missed: Iterable[int]) -> None:
        """Note who has chosen and who has not; play on when nobody is waited for."""
        state = self.state
        chosen = dict(sorted({**state.chosen, **found}.items()))
        misses = list(state.misses)
        for seat in missed:
            misses[seat] += 1
        self._state = msgspec.structs.replace(state, chosen=chosen, misses=tuple(misses))
        if not missed:
            self._advance(chosen)

    def _advance(self, chosen: Mapping[int, int]) -> None:
        state, moving = self.state, self.position.to_move()
        moves = (*state.moves, tuple(chosen[seat] for seat in moving))
        self.position.advance(chosen, derive_seed(state.seed, len(moves)))
        misses = (0,) * len(self.spec.seats)
        self._state = msgspec.structs.replace(state, moves=moves, chosen={}, misses=misses)
        self._legal = {}

    def _replay(self, record: GameState) -> None:
        """Play a record from its beginning."""
        if record.game != self.rules.name:
            raise EnvironmentFault(f"this is a snapshot of {record.game!r}, not of {self.rules.name!r}")
        self._begin(record.seed)
        for number, actions in enumerate(record.moves):
            moving = self._moving()
            if len(actions) != len(moving) or not moving:
                raise self._broken(f"decision {number} has {len(actions)} actions for {len(moving)} seats")
            chosen = dict(zip(moving, actions, strict=True))
            self._check(chosen)
            self._advance(chosen)
        moving = self._moving()
        if record.chosen and not set(record.chosen) < set(moving):
            raise self._broken("seats have moved that do not move there, or nobody is left to move")
        if len(record.misses) != len(self.spec.seats) or not all(0 <= misses <= self.tries for misses in record.misses):
            raise self._broken(f"misses {record.misses} are not one number from 0 to {self.tries} per seat")
        self._check(record.chosen)
        self._state = record

    def _check(self, chosen: Mapping[int, int]) -> None:
        for seat, action in chosen.items():
            if action not in self._legal_of(seat).values():
                raise self._broken(f"action {action} of {self.spec.seats[seat]} is not legal where it stands")

    def _broken(self, why: str) -> EnvironmentFault:
        return EnvironmentFault(f"this is no snapshot of {self.rules.name}: {why}")


def game_below(environment: Environment) -> GameEnvironment | None:
    """The game itself, of a world that is one, or that has it as its `game` and shows it in other words; else None."""
    found = environment if isinstance(environment, GameEnvironment) else getattr(environment, "game", None)
    return found if isinstance(found, GameEnvironment) else None
