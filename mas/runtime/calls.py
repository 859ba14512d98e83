"""What is written of one play, and of each of its calls; see `mas.runtime.replay_log`."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from mas.bus.plays import Plays
from mas.bus.wire import pack
from mas.core.errors import JournalError, Malformed, MasError
from mas.runtime.payloads import Candidate
from mas.runtime.policies import Charge, Spent
from mas.runtime.replay_events import CallEvent, DroppedEvent, Event, failure_of

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
    """Makes a call. `message_id` and `charge` as in `AgentClient.request` and `spend`."""

    def __call__(self, message_id: str, charge: Charge) -> Awaitable[tuple[Candidate, ...]]: ...
