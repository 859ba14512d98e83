"""One subscription of one address: receiving its messages, and ending them. And taps, the watchers of a bus: they see
every message, but never what is private.
"""

import asyncio
from collections.abc import Callable
from typing import Self

import msgspec

from mas.bus.in_flight import InFlightMessage, SubscriptionQueue
from mas.core.errors import BusError, Closed, JournalError
from mas.core.messages import Envelope, Note


class LocalSubscription(SubscriptionQueue):
    """A subscription: an async context manager that listens while it is entered.

    Args:
        address: what it listens at.
        principal: who reads.
        credit: messages held and not `done`, at most.
        enter, leave: called when listening starts and ends.
        deliver: asked for every message about to be taken; False: it was cancelled or expired, and counted.
        release: gives the credit of one message back.
        finish: told of every message that is `done`, with its effect; gives its credit back.
        give_back: told of every message that is not, with the delay, the cause, and whether that was an attempt;
            a delay of None: never again.
        withdrawn: called when it takes nothing new.

    Raises:
        ValueError: credit is below 1.
    """

    def __init__(
        self,
        address: str,
        *,
        principal: str,
        credit: int,
        enter: Callable[["LocalSubscription"], None],
        leave: Callable[["LocalSubscription"], None],
        deliver: Callable[[InFlightMessage], bool],
        release: Callable[[InFlightMessage], None],
        finish: Callable[[InFlightMessage, bytes | None], None],
        give_back: Callable[[InFlightMessage, float | None, str, bool], bool],
        withdrawn: Callable[["LocalSubscription"], None],
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit of the subscription at {address!r} is {credit}; it must be 1 or more")
        super().__init__(address, principal=principal, credit=credit)
        self._enter, self._leave, self._deliver, self._release = enter, leave, deliver, release
        self._finish, self._give_back, self._withdrawn = finish, give_back, withdrawn

    async def __aenter__(self) -> Self:
        self._enter(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._leave(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope:
        envelope = self._take()
        if envelope is not None:
            return envelope
        try:
            return await self.receive()
        except Closed:
            raise StopAsyncIteration from None

    async def receive(self) -> Envelope:
        while (envelope := self._take()) is None:
            if self.closed:
                raise Closed(f"the subscription at {self.address!r} is closed and its queue is empty")
            turn = asyncio.get_running_loop().create_future()
            self._receivers.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                self._pass_on(turn)
                raise
        return envelope

    def done(self, envelope: Envelope, *, effect: bytes | None = None) -> None:
        """Give the credit of a received message back; see `Subscription.done`.

        `effect` is kept with the message in the bus's journal, in the same transaction as the fact that it is done. A
        subscription that has ended keeps neither: the message is delivered again.

        Raises:
            BusError: this open subscription does not hold the message.
            JournalError: an effect of a request, or of a message on a bus without a journal.
        """
        if effect is not None:
            self._check_effect(envelope)
        message = self._let_go(envelope)
        if message is not None:
            self._finish(message, effect)

    def nack(
        self, envelope: Envelope, *, delay_s: float = 0.0, cause: str = "given back", is_tried: bool = True
    ) -> bool:
        """Give a received message back, to be delivered again; see `Subscription.nack`.

        Raises:
            ValueError: the delay is negative. BusError: this open subscription does not hold the message.
        """
        if not delay_s >= 0:
            raise ValueError(f"delay_s is {delay_s}; it must be 0 (at once) or more")
        message = self._let_go(envelope)
        return message is None or self._give_back(message, delay_s, cause, is_tried)

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        """Give a received message up; see `Subscription.reject`.

        Raises:
            BusError: this open subscription does not hold the message.
        """
        message = self._let_go(envelope)
        if message is not None:
            self._give_back(message, None, cause, True)

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when the answer is not awaited any more; see `Subscription.on_abandoned`."""
        message = next((message for message in self.taken.get(envelope.id, ()) if message.envelope is envelope), None)
        if message is None or message.future is None or not message.is_request:
            return
        message.watchers += (call,)
        if message.is_given_up or message.future.cancelled():
            message.call_watchers()

    async def withdraw(self) -> None:
        self.credit = 0
        self.close()
        self._withdrawn(self)

    async def heard(self) -> None:
        """In one process an answer is heard at once; see `Subscription.heard`."""

    def _check_effect(self, envelope: Envelope) -> None:
        if any(message.record is None or message.is_request for message in self.taken.get(envelope.id, ())):
            raise JournalError(
                f"the effect of {envelope.id!r} cannot be kept: it takes a journal and a one-way message"
            )

    def _let_go(self, envelope: Envelope) -> InFlightMessage | None:
        """The received message, no longer held; None: the subscription has ended, and others have it."""
        held = self.taken.get(envelope.id)
        if held is None:
            if self.closed:
                return None
            raise BusError(
                f"message {envelope.id!r} is not held by the subscription at {self.address!r}: call done, nack or "
                "reject once for each received message, on the subscription that received it"
            )
        message = held.pop(0)
        if not held:
            del self.taken[envelope.id]
        return message

    def _take(self) -> Envelope | None:
        while self.queue:
            _, message = self.queue.popitem(last=False)
            message.place = None
            if self._deliver(message):
                message.receiver = self
                self.taken.setdefault(message.envelope.id, []).append(message)
                return message.envelope
            self._release(message)
        return None

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """A cancelled receiver hands its wake-up to the next one, so that no message lies unseen."""
        if turn in self._receivers:
            self._receivers.remove(turn)
        elif self.queue:
            self._wake()


Watch = Callable[[Envelope], None]


def redacted(envelope: Envelope, principal: str | None) -> Envelope:
    """The envelope as `principal` may see it; a private payload becomes the note `[private]`. None: a stranger."""
    if envelope.visibility is None or principal in envelope.visibility:
        return envelope
    return msgspec.structs.replace(envelope, kind=Note.kind, payload=Note(text="[private]"))


class Taps:
    """The watchers of one bus."""

    def __init__(self) -> None:
        self._watches: dict[object, tuple[Watch, str | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch: Watch, *, principal: str | None) -> Callable[[], None]:
        """Start a tap; returns a function that ends it and may be called twice."""
        key = object()
        self._watches[key] = (watch, principal)

        def end() -> None:
            self._watches.pop(key, None)

        return end

    def show(self, envelope: Envelope) -> None:
        """Show a message to all; a watcher that raises is reported to the event loop and stops no delivery."""
        if not self._watches:
            return
        for watch, principal in tuple(self._watches.values()):
            try:
                watch(redacted(envelope, principal))
            except Exception as error:  # noqa: BLE001 - a tap must not break the sender
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a tap failed on message {envelope.id!r}", "exception": error}
                )
