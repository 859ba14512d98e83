"""The events of a play as data, of the play itself and of each of its calls: enough to resume it in another process.

See `mas.runtime.replay_log`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Protocol

import msgspec

from mas.bus.plays import Plays
from mas.bus.wire import pack, unpacker
from mas.core.environment import Step
from mas.core.errors import JournalError, Malformed, MasError, error_named
from mas.runtime.payloads import Candidate
from mas.runtime.policies import Bill, Spent

Setting = str | int | float | bool | None


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """What must be the same whenever the play is resumed.

    Attributes:
        plan: digest of the team; state: fingerprint of the environment after its reset.
        settings: what else the player says that the play depends on.
    """

    plan: str
    state: str
    settings: dict[str, Setting]


class TurnBegan(msgspec.Struct, frozen=True, kw_only=True, tag="turn"):
    """A team turn began. `seen`: fingerprint of what its agents see; `at`: seconds that the play had been played."""

    turn: int
    seen: str
    at: float


class CallEvent(msgspec.Struct, frozen=True, kw_only=True, tag="called"):
    """An agent, or its stand-in, was asked and has answered or failed.

    Attributes:
        visit: how often the agent has spoken in this turn before; number: of the call in this visit, from 1.
        asked: fingerprint of the question; name: who was asked.
        began, at: when it was asked and when it answered, in seconds that the play had been played.
        spent: what it took from the budgets that limit it, reservations that stay spent included.
        candidates: the answer; error: name and text of the error, None where there is an answer.
    """

    turn: int
    agent: str
    visit: int
    number: int
    asked: str
    name: str
    began: float
    at: float
    spent: Spent
    candidates: tuple[Candidate, ...] = ()
    error: tuple[str, str] | None = None

    def outcome(self) -> tuple[Candidate, ...]:
        """The answer.

        Raises:
            MasError: what it failed with.
        """
        if self.error is not None:
            raise error_named(*self.error)
        return self.candidates


class Round(msgspec.Struct, frozen=True, kw_only=True, tag="round"):
    """The tokens of agents that spoke at once travelled, and then joins that had waited long enough waited no more."""

    turn: int
    spoke: tuple[str, ...]
    expired: tuple[str, ...]
    at: float


class DroppedEvent(msgspec.Struct, frozen=True, kw_only=True, tag="dropped"):
    """An answer came just when it was not awaited any more."""

    turn: int
    agent: str
    visit: int
    number: int


class GaveUp(msgspec.Struct, frozen=True, kw_only=True, tag="gave_up"):
    """The turn failed with an agent; on resume it is asked again."""

    turn: int
    agent: str
    visit: int


class Committed(msgspec.Struct, frozen=True, kw_only=True, tag="committed"):
    """The environment made a step.

    Attributes:
        state: the environment's snapshot afterwards; key: its `state_key`.
    """

    turn: int
    actions: dict[str, str]
    step: Step
    state: bytes
    key: str
    at: float


class EndEvent(msgspec.Struct, frozen=True, kw_only=True, tag="over"):
    """The play came to its end, or can never do so: what it failed with."""

    failure: str | None
    at: float


Event = TurnBegan | CallEvent | Round | DroppedEvent | GaveUp | Committed | EndEvent


read_event: Callable[[bytes], Event] = unpacker(Event)
"""The event that `pack` made bytes of; Malformed where they are none, or hold a payload that is unknown here."""
read_beginning: Callable[[bytes], Beginning] = unpacker(Beginning)


def fingerprint(*parts: object) -> str:
    """Equal for equal parts, 32 hexadecimal digits."""
    return blake2b(pack(_EventParts(parts)), digest_size=16).hexdigest()


def failure_of(error: MasError) -> tuple[str, str]:
    """Name and text, for a record."""
    return type(error).__name__, str(error)


class _EventParts(msgspec.Struct):
    parts: tuple[object, ...]


Visit = tuple[int, str, int]
"""Turn, agent, and how often it has spoken before."""


class PlayRecord:
    """Writes the events of one play, and knows how long it was played.

    Args:
        play: its id.
        played_s: how long it was played in earlier lives, at least.

    Attributes:
        is_undone: its turn failed, and what was said is compensated.
        is_over: its end is written.
    """

    def __init__(self, plays: Plays, play: str, played_s: float) -> None:
        self.id = play
        self.played_s = played_s
        self.is_over = False
        self.is_undone = False
        self._plays = plays
        self._now = asyncio.get_running_loop().time
        self._live_since: float | None = None

    def clock_s(self) -> float:
        """How long the play was played, in all lives."""
        return self.played_s + (0.0 if self._live_since is None else self._now() - self._live_since)

    def go_live(self) -> None:
        """The record is played to its end: time passes again."""
        if self._live_since is None:
            self._live_since = self._now()

    def tick(self) -> None:
        """Note how long it was played."""
        if self._live_since is not None and not self.is_over:
            self._plays.tick(self.id, self.clock_s())

    def put(self, event: Event) -> None:
        """Write an event down, without waiting.

        Raises:
            JournalError: it cannot be written.
        """
        try:
            frame = pack(event)
        except Malformed as error:
            raise JournalError(f"play {self.id!r} cannot be kept: {error}") from error
        self._plays.add(self.id, frame)

    async def write(self, event: Event) -> None:
        """Write an event down, and wait until it survives.

        Raises:
            JournalError: it cannot be written, or the disk has failed.
        """
        self.put(event)
        await self._plays.is_safe()


class Call:
    """One question to an agent, or to its stand-in, that is made now; `record`: where its outcome is written.

    Attributes:
        id: of its message, the same in every life.
        visit, number: the agent's visit that asks, and the number of the call in it, from 1.
        name, asked: who is asked, and the fingerprint of the question.
        began: when it was asked, in seconds that the play had been played.
    """

    def __init__(self, record: PlayRecord, visit: Visit, number: int, name: str, asked: str) -> None:
        self.id = f"{record.id}/{visit[0]}/{visit[1]}/{visit[2]}/{number}"
        self.visit, self.number, self.name, self.asked = visit, number, name, asked
        self.began = 0.0
        self._record = record

    async def answered(self, candidates: tuple[Candidate, ...], spent: Spent) -> None:
        """It was answered.

        Raises:
            JournalError: the answer cannot be written.
        """
        try:
            await self._write(spent, candidates, None)
        except asyncio.CancelledError:
            turn, agent, visit = self.visit
            self._record.put(DroppedEvent(turn=turn, agent=agent, visit=visit, number=self.number))
            raise

    async def failed(self, error: MasError, spent: Spent) -> None:
        """It failed.

        Raises:
            JournalError: that cannot be written.
        """
        await self._write(spent, (), error)

    async def _write(self, spent: Spent, candidates: tuple[Candidate, ...], error: MasError | None) -> None:
        turn, agent, visit = self.visit
        await self._record.write(
            CallEvent(
                turn=turn,
                agent=agent,
                visit=visit,
                number=self.number,
                asked=self.asked,
                name=self.name,
                began=self.began,
                at=self._record.clock_s(),
                spent=spent,
                candidates=candidates,
                error=None if error is None else failure_of(error),
            )
        )


class Make(Protocol):
    """Makes a call. `message_id` and `bill` as in `AgentClient.request` and `spend`."""

    def __call__(self, message_id: str, bill: Bill) -> Awaitable[tuple[Candidate, ...]]: ...
