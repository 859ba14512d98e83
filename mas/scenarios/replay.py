"""Environments whose only exact copy is to play again: what was done since the start is the whole state.

Foreign games keep generators, open files and half-drained queues in places that a deep copy misses or shares. So a
clone holds the task and the actions so far, plays them again when it is first asked for something, and refuses to go on
where that shows anything else than the original saw.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, Self, cast

import msgspec

from mas.core.environment import Caller, CountedCall, EnvironmentSpec, Observation, Step, Task, denied_in
from mas.core.errors import EnvironmentFault, MasError
from mas.core.naming import did_you_mean
from mas.core.printable import is_readable
from mas.core.seeds import digest
from mas.core.tool_call import ToolCall
from mas.scenarios.tool_methods import GameTools

LONGEST = 2000
"""Characters of an action: games search it with patterns whose time grows with the square of its length."""


class ReplayedWorld(Protocol):
    """A foreign game that runs. Whatever it does follows from the seed that it began with and the actions since."""

    def to_move(self) -> str | None:
        """The seat that must act, None at the end."""

    def act(self, action: str) -> Step:
        """Act for the seat that must."""

    def fields(self, view: str) -> Mapping[str, str]:
        """What a view sees. Pure."""

    def legal(self) -> tuple[str, ...] | None:
        """Legal actions of the seat that must act, None where they cannot be listed, as of derived classes. Pure."""
        return None

    def success(self) -> bool:
        """Whether the task is solved. Pure."""

    def render(self) -> str:
        """Everything, for people. Pure."""


class ToolGame(ReplayedWorld, Protocol):
    """A game with tools of which calls can be denied."""

    tools: GameTools

    def deny(self, action: str, answer: str) -> Step:
        """In place of `act`: the turn is spent, and the result of the call is this answer."""


class Played(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole state.

    Attributes:
        proof: a digest of all that was seen on the way.
        counted: number of an action -> whose call it was, of callers with rules, and what it was told instead.
    """

    name: str
    seed: int
    actions: tuple[str, ...]
    proof: str
    counted: Mapping[int, Caller] = {}


class ReplayEnvironment:
    """Satisfies `mas.core.environment.Environment` for games in which one seat moves at a time.

    A clone costs nothing until it is used, and then the time of all steps so far. An action that is too long or has
    control characters is illegal and reaches the game as an empty text.
    """

    def __init__(self, spec: EnvironmentSpec, begin: Callable[[int], ReplayedWorld], *, longest: int = LONGEST) -> None:
        """`begin`: the game's start from a seed. `longest`: characters of an action."""
        self.spec, self._longest = spec, longest
        self._begin = begin
        self._played: Played | None = None
        self._world: ReplayedWorld | None = None

    def reset(self, task: Task) -> None:
        self._world = self._begin(task.seed)
        self._played = Played(self.spec.name, task.seed, (), self._seen(self._world, ""))

    def to_move(self) -> tuple[str, ...]:
        world, moves = self._running(), len(self._state().actions)
        seat = world.to_move() if moves < self.spec.max_turns else None
        return () if seat is None else (seat,)

    def observe(self, view: str) -> Observation:
        if view not in self.spec.views:
            raise EnvironmentFault(f"{self.spec.name} has no view {view!r}. {did_you_mean(view, self.spec.views)}")
        return Observation(self._running().fields(view))

    def legal(self, seat: str) -> tuple[str, ...] | None:
        if seat not in self.spec.seats:
            raise EnvironmentFault(f"{self.spec.name} has no seat {seat!r}. {did_you_mean(seat, self.spec.seats)}")
        return self._running().legal() if (seat,) == self.to_move() else ()

    def step(self, actions: Mapping[str, str]) -> Step:
        return self._step(actions, None)

    def _step(self, actions: Mapping[str, str], caller: Caller | None) -> Step:
        moving, state = self.to_move(), self._state()
        if not moving:
            raise EnvironmentFault(f"{self.spec.name}: the episode is over, call reset(task) to begin another")
        if set(actions) != set(moving):
            raise EnvironmentFault(f"{self.spec.name}: seats {sorted(actions)} acted, to move are {sorted(moving)}")
        said = actions[moving[0]]
        action = clean(said, self._longest)
        world = self._running()
        step = self._act(world, action, caller)
        proof = self._seen(world, state.proof)
        counted = state.counted if caller is None else {**state.counted, len(state.actions): caller}
        self._played = msgspec.structs.replace(state, actions=(*state.actions, action), proof=proof, counted=counted)
        return step if action == said else msgspec.structs.replace(step, illegal=moving)

    def success(self) -> bool:
        return self._running().success()

    def clone(self) -> Self:
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin._world = None
        return twin

    def snapshot(self) -> bytes:
        return msgspec.json.encode(self._state())

    def restore(self, state: bytes) -> None:
        try:
            played = msgspec.json.decode(state, type=Played)
        except msgspec.MsgspecError as error:
            raise EnvironmentFault(f"this is no snapshot of {self.spec.name}: {error}") from error
        if played.name != self.spec.name or len(played.actions) > self.spec.max_turns:
            raise EnvironmentFault(
                f"a snapshot of {played.name} after {len(played.actions)} actions is none of {self.spec.name}, "
                f"which ends after {self.spec.max_turns} at the latest"
            )
        self._world = self._again(played)
        self._played = played

    def state_key(self) -> str:
        state = self._state()
        told = [f"{number} {caller}" for number, caller in state.counted.items()]
        return digest(state.name, state.seed, *state.actions, *told)

    def render(self) -> str:
        return self._running().render()

    def _state(self) -> Played:
        if self._played is None:
            raise EnvironmentFault(f"{self.spec.name} was not reset: call reset(task) first")
        return self._played

    def _running(self) -> ReplayedWorld:
        state = self._state()
        if self._world is None:
            self._world = self._again(state)
        return self._world

    def _again(self, played: Played) -> ReplayedWorld:
        """The game after these actions."""
        world = self._begin(played.seed)
        proof = self._seen(world, "")
        possible = True
        for number, action in enumerate(played.actions):
            possible = possible and world.to_move() is not None
            if possible:
                self._act(world, clean(action, self._longest), played.counted.get(number))
                proof = self._seen(world, proof)
        if not possible or proof != played.proof:
            raise EnvironmentFault(
                f"{self.spec.name}, seed {played.seed}: {len(played.actions)} actions played again showed something "
                "else than the first time: the game depends on more than its seed, or another version of it was played"
            )
        return world

    def _act(self, world: ReplayedWorld, action: str, caller: Caller | None) -> Step:
        try:
            answer = None if caller is None else caller.denied
            return world.act(action) if answer is None else cast(ToolGame, world).deny(action, answer)
        except MasError:
            self._world = None
            raise
        except Exception as error:
            self._world = None
            raise EnvironmentFault(
                f"{self.spec.name}: the game broke at {action!r}: {type(error).__name__}: {error}"
            ) from error

    def _seen(self, world: ReplayedWorld, before: str) -> str:
        shown = [f"{name}={text}" for view in self.spec.views for name, text in sorted(world.fields(view).items())]
        return digest(before, world.to_move() or "", *shown)


class ReplayToolEnvironment(ReplayEnvironment):
    """Satisfies `mas.core.environment.ToolWorld`, too: the game is a `ToolGame`.

    Its tools may change whatever they want of the game: each clone plays all calls of its own branch.
    """

    def __init__(
        self,
        spec: EnvironmentSpec,
        begin: Callable[[int], ToolGame],
        *,
        tool_names: tuple[str, ...],
        longest: int = LONGEST,
    ) -> None:
        super().__init__(spec, begin, longest=longest)
        self.tool_names = tool_names

    @property
    def _tools(self) -> GameTools:
        return cast(ToolGame, self._running()).tools

    def call_of(self, action: str) -> ToolCall | None:
        return self._tools.call_of(clean(action, self._longest))

    def is_call(self, action: str) -> bool:
        return self._tools.is_call(clean(action, self._longest))

    def is_failed_call(self, action: str) -> bool:
        return self._tools.is_failed_call(clean(action, self._longest))

    def counted_calls(self) -> tuple[CountedCall, ...]:
        state, found = self._state(), []
        for number, caller in state.counted.items():
            call = self._tools.call_of(state.actions[number])
            found.append(CountedCall(caller.agent, call.name if call else "", caller.denied is not None))
        return tuple(found)

    def step_as(self, actions: Mapping[str, str], callers: Mapping[str, Caller]) -> Step:
        step = self._step(actions, next(iter(callers.values()), None))
        return msgspec.structs.replace(step, denied=denied_in(callers))


def clean(action: str, longest: int) -> str:
    """The action, or an empty text for one that no game is to see."""
    return action if is_readable(action, longest) else ""
