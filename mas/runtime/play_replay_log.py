"""The record of one play: what it has is played again in its order, what happens beyond it is written down.

An event is on the disk before anything depends on it: an answer before its tokens travel, the order of tokens before
the next agents are asked, a step of the environment before the next turn begins. So whatever was asked before a kill is
asked again with the same words, seeds and id, or not at all.

What the record says nothing of must wait until all that it has is replayed (`TurnReplayLog.peek` finds no more rounds):
in a turn that is over it was cancelled, and must not be asked again.
"""

from collections.abc import Sequence

from mas.bus.plays import Plays
from mas.core.errors import JournalError, MasError
from mas.runtime.calls import PlayRecord
from mas.runtime.events import DroppedEvent, EndEvent, GaveUp, read_event
from mas.runtime.turn_replay_log import TurnReplayLog


class PlayReplayLog(PlayRecord):
    """One play while a process plays it.

    Args:
        play: its id; life: which process this is, from 1.
        events: what is written of it.
        played_s: how long it was played in earlier lives, at least.

    Raises:
        Malformed: an event holds a payload that is unknown here.
    """

    def __init__(self, plays: Plays, play: str, *, life: int, events: Sequence[bytes], played_s: float) -> None:
        known = [read_event(frame) for frame in events]
        times = (event.at for event in known if not isinstance(event, DroppedEvent | GaveUp))
        super().__init__(plays, play, max([played_s, *times]))
        self.life = life
        self._turns: dict[int, TurnReplayLog] = {}
        self._looks = 0
        for event in known:
            if isinstance(event, EndEvent):
                self.is_over = True
            else:
                self.of_turn(event.turn).load(event)

    def of_turn(self, turn: int) -> TurnReplayLog:
        """The record of a team turn."""
        if turn not in self._turns:
            self._turns[turn] = TurnReplayLog(self, turn)
        return self._turns[turn]

    def look_id(self) -> str:
        """The id of the next message to the environment, which is another one in every life."""
        self._looks += 1
        return f"{self.id}/life/{self.life}/{self._looks}"

    async def failed(self, error: MasError) -> None:
        """This life ends with an error. What was compensated is over; everything else can be resumed."""
        text = f"{type(error).__name__}: {error}"
        if self.is_undone and not self.is_over:
            await self.end(text)
        if not isinstance(error, JournalError):
            self._plays.fail(self.id, text)

    async def end(self, failure: str | None = None) -> None:
        """The play is over.

        Raises:
            JournalError: the disk has failed.
        """
        if self.is_over:
            return
        self.go_live()
        self.put(EndEvent(failure=failure, at=self.clock_s()))
        self.is_over = True
        self._plays.end(self.id)
        await self._plays.is_safe()
