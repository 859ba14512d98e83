"""Dead letters: messages whose delivery was promised and given up on, with the cause."""

import time
from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

from mas.bus.pending import Pending
from mas.core.messages import Envelope

P = TypeVar("P", bound=Pending)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A one-way message that its sender believes to be on its way, and that will not arrive unless it is re-driven.

    Attributes:
        cause: why it was given up on.
        attempts: how often a receiver had it and did not finish; 0: it was not taken.
        died_at: seconds since 1970.
    """

    envelope: Envelope
    cause: str
    attempts: int
    died_at: float


class DeadLetters(Generic[P]):
    """The latest dead letters of one bus, or of what one process sent, oldest first.

    Args:
        limit: how many are kept; of the older ones only the number `forgotten` is left. 0: none is kept.
    """

    def __init__(self, limit: int) -> None:
        self.forgotten = 0
        self._limit = limit
        self._letters: OrderedDict[Hashable, tuple[DeadLetter, P]] = OrderedDict()

    def add(self, key: Hashable, message: P, cause: str, *, died_at: float | None = None) -> None:
        """Keep a message that died. `key`: unique among the letters. `died_at` None: now."""
        letter = DeadLetter(
            envelope=message.envelope,
            cause=cause,
            attempts=message.tries,
            died_at=time.time() if died_at is None else died_at,
        )
        self._letters[key] = (letter, message)
        while len(self._letters) > self._limit:
            self._letters.popitem(last=False)
            self.forgotten += 1

    def all(self) -> tuple[DeadLetter, ...]:
        """Every letter that is kept, oldest first."""
        return tuple(letter for letter, _ in self._letters.values())

    def take(self, message_id: str | None) -> list[P]:
        """Remove the letters with this id, None: all; returns their messages."""
        taken = {
            key: message for key, (letter, message) in self._letters.items() if message_id in (None, letter.envelope.id)
        }
        for key in taken:
            del self._letters[key]
        return list(taken.values())
