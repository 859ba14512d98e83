"""The contract of every bus."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from mas.core.messages import Envelope, Payload


class Gap(msgspec.Struct, frozen=True):
    """Stands in a stream for the parts `first` to `last`: lost on the wire, or because the reader was slow."""

    first: int
    last: int


class Restart(msgspec.Struct, frozen=True):
    """What came so far of a stream is void: the answer was begun anew, and its parts count from 0 again."""


class PartStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of parts that add up at any time: accepted = delivered + passed + dropped + waiting.

    Attributes:
        accepted: sent by handlers here, or come from another process for a reader here.
        delivered: read.
        passed: given, best effort, to the connection to the process that reads.
        dropped: nobody streamed, the reader was slow or had left, or they came late, twice or after a restart.
        waiting: in the queue of a reader.
        missing: numbers that readers were told of in gaps.
    """

    accepted: int = 0
    delivered: int = 0
    passed: int = 0
    dropped: int = 0
    waiting: int = 0
    missing: int = 0


class BusStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters that add up at any time: accepted = delivered + expired + dropped + dead + waiting.

    Attributes:
        delivered: received and not given back: processed + held.
        waiting: at a sender, in a queue, or given back until it is delivered again.
        processed: received and `done`; answers that reached their requester; requests whose requester was told that
            their listener left.
        held: received and not yet `done`.
        dead: given up on after delivery was promised; a dead letter keeps each of the latest ones.
        parts: parts of answers, which are no messages of their own and in no other counter.
    """

    accepted: int
    delivered: int
    expired: int
    dropped: int
    waiting: int
    subscriptions: int
    processed: int = 0
    held: int = 0
    dead: int = 0
    parts: PartStatistics = PartStatistics()


@runtime_checkable
class Subscription(Protocol):
    """An inbox with a bounded queue. Iterating takes messages; each taken message is acknowledged by `done`."""

    address: str

    def __aiter__(self) -> AsyncIterator[Envelope]:
        """Messages as they come; ends when the subscription or the bus closes."""

    async def receive(self) -> Envelope:
        """The next message.

        Raises:
            Closed: the subscription or the bus is closed and the queue is empty.
        """

    def done(self, envelope: Envelope) -> None:
        """Handled: give its credit back, so that the next message may be delivered. It is never delivered again."""

    def nack(
        self, envelope: Envelope, *, delay_s: float = 0.0, cause: str = "given back", is_tried: bool = True
    ) -> bool:
        """Not handled: give it back, to be delivered again after a delay, to any subscription of the address.

        Returns whether it will be.

        Messages of its source and key that come later wait behind it; those that were received already should be given
        back with it. After as many attempts as the bus allows, a one-way message becomes a dead letter with the cause,
        and a request fails with it. A best-effort message is dropped instead.

        Args:
            delay_s: seconds until it may be delivered; 0: at once.
            is_tried: False: it only waits for another one, and this delivery does not count as an attempt to handle it.

        Raises:
            ValueError: the delay is negative. BusError: this open subscription does not hold the message.
        """

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        """It will never be handled: as `nack` after the last attempt.

        Raises:
            BusError: this open subscription does not hold the message.
        """

    async def withdraw(self) -> None:
        """Take nothing new. What was delivered can still be received, and handled; iterating ends when it is all
        received. What comes now, or waits for room, goes to the other subscriptions of the address; where there is none
        it waits until this one ends, as if it had ended now."""

    async def heard(self) -> None:
        """Wait until those who asked have what was answered here, or for a short while where it is not known."""

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when nobody waits any more for the answer to a request that was received here and not answered:
        its requester was cancelled, its deadline passed, or the bus closed. Never called for one-way messages."""


@runtime_checkable
class Stream(Protocol):
    """One request and its answer in parts. Iterating takes the parts as they come and ends with the answer."""

    def __aiter__(self) -> AsyncIterator[Envelope | Gap | Restart]:
        """Parts in order, each once, with `Gap` in the place of those that are lost. `Restart`: forget what came.

        A part's `sequence` counts from 0, and it is not `final`: that is the answer, whose `sequence` is the number of
        parts. Parts are best effort; joined they are what the handler sent, if there was no gap.

        Raises:
            As `Bus.request`, after the parts that came before.
        """

    async def answer(self) -> Envelope:
        """The answer itself, whatever became of the parts; they need not be read. May be called again.

        Raises:
            As `Bus.request`. Closed: the stream was left before its answer came.
        """


@runtime_checkable
class Bus(Protocol):
    """Asynchronous messages between addresses. Guarantees live here, not in the transport."""

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to."""

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        """Deliver one way. Waits for room in the receiver's queue unless `wait` is False or the delivery best effort.

        Raises:
            NoRoute: no listener at the target. Denied: the receiver is not among the readers.
            Expired: the deadline passed first. Dropped: no room and `wait` is False. Closed: the bus is closed.
        """

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        """Deliver and wait for the answer; cancelling the caller cancels the request, and its handler.

        Raises:
            BusError: as `publish`; Expired when no answer came in time.
            RemoteError: the handler failed.
        """

    def stream(
        self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256
    ) -> AbstractAsyncContextManager[Stream]:
        """Deliver a request when entered and read its answer in parts; the answer itself is as sure as `request`'s.

            async with bus.stream(question, timeout_s=60.0) as stream:
                async for part in stream:
                    ...
                answer = await stream.answer()

        Leaving before the answer came cancels the request, and its handler.

        Args:
            queue: parts that wait for the reader, at most; what comes then is lost to it.

        Raises:
            ValueError: the queue is below 1.
        """

    def part(self, request: Envelope, payload: Payload) -> bool:
        """Send a part of the answer to a request that was received, best effort and without waiting.

        Only the requester reads it. Returns whether anybody streams this answer; where nobody does, where it was
        answered, or where there is no room on the way, the part is counted and dropped.

        Raises:
            Malformed: the payload cannot travel.
        """

    async def reply(self, request: Envelope, answer: Envelope) -> None:
        """Answer a request that was received; an answer that nobody waits for any more is counted and dropped."""

    async def fail(self, request: Envelope, error: Exception) -> None:
        """Answer a request with an error, raised at the requester as it is if it is a MasError, else as RemoteError."""

    def subscribe(
        self, address: str, *, principal: str | None = None, credit: int = 64
    ) -> AbstractAsyncContextManager[Subscription]:
        """Listen at an address. At most `credit` messages are delivered and not yet `done`; more wait at the sender.

        Several subscriptions of one address share its messages; each message goes to one of them.
        """

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        """Call `watch` for every message accepted; private payloads that `principal` may not read are withheld.

        Returns a function that ends the tap.
        """

    def statistics(self) -> BusStatistics:
        """Counters so far."""

    async def close(self) -> None:
        """Stop accepting, wake every waiter with Closed; safe to call twice."""
