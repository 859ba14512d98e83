"""Messages that are not delivered: the errors that their senders get, on every bus, and dead letters.

A dead letter is a message whose delivery was promised and given up on, with the cause.
"""

import time
from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from mas.bus.in_flight import Pending
from mas.core.errors import Closed, Denied, Expired, NoRoute, RemoteError
from mas.core.messages import Envelope
from mas.core.naming import did_you_mean, listed


def bus_closed(envelope: Envelope) -> Closed:
    """The bus ends, or has ended."""
    return Closed(f"message {envelope.id!r}: the bus is closed")


def no_listener(envelope: Envelope, addresses: Iterable[str]) -> NoRoute:
    """No subscription at the target. `addresses`: those that have one."""
    return NoRoute(
        f"message {envelope.id!r}: there is no listener at {envelope.target!r}. "
        f"{did_you_mean(envelope.target, addresses)}"
    )


def no_listener_left(envelope: Envelope) -> NoRoute:
    """The last subscription at the target ended."""
    return NoRoute(f"message {envelope.id!r}: the last listener at {envelope.target!r} left")


def no_answer(envelope: Envelope) -> Closed:
    """The receiver of a request left or died without an answer."""
    return Closed(f"request {envelope.id!r}: its listener at {envelope.target!r} left without an answer")


def not_a_reader(envelope: Envelope, readers: Collection[str]) -> Denied:
    """These read at the target, and the message is not for them."""
    return Denied(
        f"message {envelope.id!r}: {listed(readers)} at {envelope.target!r} is not in its visibility: "
        f"{listed(envelope.visibility or ())}"
    )


def not_received(envelope: Envelope) -> Expired:
    """The deadline passed before a receiver had it."""
    return Expired(f"message {envelope.id!r} to {envelope.target!r} was not received in time")


def not_answered(envelope: Envelope) -> Expired:
    """The deadline passed while a receiver had it."""
    return Expired(f"request {envelope.id!r}: {envelope.target!r} did not answer in time")


def given_up(envelope: Envelope, cause: str) -> RemoteError:
    """It was tried as often as it may be, or its receiver rejected it."""
    return RemoteError(f"message {envelope.id!r} to {envelope.target!r} was given up: {cause}")


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
