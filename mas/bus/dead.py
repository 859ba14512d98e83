"""Dead letters: messages whose delivery was promised and given up on, with the cause."""

import time
from collections import OrderedDict

import msgspec

from mas.bus.slot import Slot
from mas.core.messages import Envelope


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A one-way message that its sender believes to be on its way, and that will not arrive unless it is re-driven.

    Attributes:
        cause: why it was given up on.
        attempts: how often a receiver had it and did not finish; 0: nobody took it.
        died_at: seconds since 1970.
    """

    envelope: Envelope
    cause: str
    attempts: int
    died_at: float


class DeadLetters:
    """The latest dead letters of one bus, oldest first.

    Args:
        limit: how many are kept; of the older ones only the number `forgotten` is left. 0: none is kept.
    """

    def __init__(self, limit: int) -> None:
        self.forgotten = 0
        self._limit = limit
        self._letters: OrderedDict[int, tuple[DeadLetter, Slot, bool]] = OrderedDict()

    def add(self, slot: Slot, cause: str, *, is_expired: bool = False, died_at: float | None = None) -> None:
        """Keep a message that died. `died_at` None: now. `is_expired`: its deadline passed, and is counted there."""
        letter = DeadLetter(
            envelope=slot.envelope,
            cause=cause,
            attempts=slot.tries,
            died_at=time.time() if died_at is None else died_at,
        )
        self._letters[slot.ticket] = (letter, slot, is_expired)
        while len(self._letters) > self._limit:
            self._letters.popitem(last=False)
            self.forgotten += 1

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter that is kept, oldest first."""
        return tuple(letter for letter, *_ in self._letters.values())

    def take(self, message_id: str | None) -> list[tuple[Slot, bool]]:
        """Remove the letters with this id, None: all; returns their messages and whether they had expired."""
        taken = [
            (slot, is_expired)
            for letter, slot, is_expired in self._letters.values()
            if message_id is None or letter.envelope.id == message_id
        ]
        for slot, _ in taken:
            del self._letters[slot.ticket]
        return taken
