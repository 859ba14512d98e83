"""The contract of every bus."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from mas.core.messages import Envelope


class BusStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Counters that add up: accepted = delivered + expired + dropped + waiting."""

    accepted: int
    delivered: int
    expired: int
    dropped: int
    waiting: int
    subscriptions: int


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
        """Handled: give its credit back, so that the next message may be delivered."""

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when nobody waits any more for the answer to a request that was received here and not answered:
        its requester was cancelled, its deadline passed, or the bus closed. Never called for one-way messages."""


@runtime_checkable
class Bus(Protocol):
    """Asynchronous messages between addresses. Guarantees live here, not in the transport."""

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to."""

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        """Deliver one way. Waits for room in the receiver's queue unless `wait` is False.

        Raises:
            NoRoute: nobody listens at the target. Denied: the receiver is not among the readers.
            Expired: the deadline passed first. Dropped: no room and `wait` is False. Closed: the bus is closed.
        """

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        """Deliver and wait for the answer; cancelling the caller cancels the request, and its handler.

        Raises:
            As `publish`; Expired when no answer came in time; RemoteError when the handler failed.
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
