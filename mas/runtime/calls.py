"""One call of a play: what is recorded of it, or what is to be; see `mas.runtime.play_replay_log`."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Protocol

from mas.core.errors import JournalError, MasError, ReplayError
from mas.runtime.agents import Candidate
from mas.runtime.budget import Bill, Purse, Spent
from mas.runtime.events import (
    CallEvent,
    DroppedEvent,
    failure_of,
)

if TYPE_CHECKING:
    from mas.runtime.turn_replay_log import TurnReplayLog

Visit = tuple[int, str, int]
"""Turn, agent, and how often it has spoken before."""


class Call:
    """One question to an agent, or to who stands in for it. `id`: of its message, the same in every life."""

    def __init__(self, turn: "TurnReplayLog", visit: Visit, number: int, name: str, asked: str) -> None:
        self.id = f"{turn.play.id}/{visit[0]}/{visit[1]}/{visit[2]}/{number}"
        self._turn, self._visit, self._number = turn, visit, number
        self._name, self._asked = name, asked
        self._began = 0.0

    async def known(self, purses: Sequence[Purse], most: Spent) -> CallEvent | None:
        """What is recorded of it, None where it is to be made now; what was spent is taken from the purses.

        Args:
            most: what it reserves there when it is made.

        Raises:
            ReplayError: something else was asked.
        """
        play, known = self._turn.play, await self._turn.recorded((self._visit, self._number), purses, most)
        for call in (*self._turn.lost(self._visit), *(() if known is None else (known,))):
            for purse in purses:
                purse.take(call.spent, ago_s=play.clock_s() - call.began)
        self._began = play.clock_s()
        if known is not None and (known.asked, known.name) != (self._asked, self._name):
            raise ReplayError(
                f"agent {self._visit[1]!r} is asked something else in turn {self._visit[0]} of play {play.id!r} than "
                "when it was recorded: another seed, temperature or version, or whoever decides is not deterministic"
            )
        return known

    async def answered(self, candidates: tuple[Candidate, ...], spent: Spent) -> None:
        """It was answered.

        Raises:
            JournalError: the answer cannot be written.
        """
        try:
            await self._write(spent, candidates, None)
        except asyncio.CancelledError:
            turn, agent, visit = self._visit
            self._turn.play.put(DroppedEvent(turn=turn, agent=agent, visit=visit, number=self._number))
            raise

    async def failed(self, error: MasError, spent: Spent) -> None:
        """It failed.

        Raises:
            JournalError: that cannot be written.
        """
        await self._write(spent, (), error)

    async def _write(self, spent: Spent, candidates: tuple[Candidate, ...], error: MasError | None) -> None:
        turn, agent, visit = self._visit
        await self._turn.play.write(
            CallEvent(
                turn=turn,
                agent=agent,
                visit=visit,
                number=self._number,
                asked=self._asked,
                name=self._name,
                began=self._began,
                at=self._turn.play.clock_s(),
                spent=spent,
                candidates=candidates,
                error=None if error is None else failure_of(error),
            )
        )


class Make(Protocol):
    """Makes a call. `message_id` and `bill` as in `AgentClient.request` and `spend`."""

    def __call__(self, message_id: str, bill: Bill) -> Awaitable[tuple[Candidate, ...]]: ...


_NOTHING = Spent()


async def kept(call: Call, make: Make, purses: Sequence[Purse] = (), most: Spent = _NOTHING) -> tuple[Candidate, ...]:
    """What is recorded of a call, or what comes of it now, which is then recorded."""
    known = await call.known(purses, most)
    if known is not None:
        return known.outcome()
    bill = Bill()
    try:
        candidates = await make(call.id, bill)
    except (JournalError, ReplayError):  # no outcome of the call
        raise
    except MasError as error:
        await call.failed(error, bill.spent)
        raise
    await call.answered(candidates, bill.spent)
    return candidates
