"""The outcome of every accepted message: each ends in exactly one counter, and its sender gets the outcome."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from mas.bus.address_queue import AddressQueue
from mas.bus.counters import BusLimits, Counters
from mas.bus.in_flight import InFlightMessage, Recent
from mas.bus.journal import Journal
from mas.bus.journal_tables import State
from mas.bus.undelivered import DeadLetters, given_up, no_listener_left, not_answered, not_received
from mas.core.errors import Dropped
from mas.core.messages import Delivery, Envelope, Note

# Looked up once: in Python 3.11 a member of an enumeration costs a quarter of a microsecond, several times a message.
_ONCE: Final = Delivery.EFFECTIVELY_ONCE


Watch = Callable[[Envelope], None]


def redacted(envelope: Envelope, principal: str | None) -> Envelope:
    """The envelope as `principal` may see it; a private payload becomes the note `[private]`. None: a stranger."""
    if envelope.visibility is None or principal in envelope.visibility:
        return envelope
    return msgspec.structs.replace(envelope, kind=Note.kind, payload=Note(text="[private]"))


class Taps:
    """The watchers of one bus: they see every message, but never what is private."""

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
            except Exception as error:  # noqa: BLE001 - the watcher's own error: reported below, and the message is delivered
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a tap failed on message {envelope.id!r}", "exception": error}
                )


class Settlement:
    """The one place that settles messages and counts them.

    Args:
        clock: seconds that deadlines refer to.
        limits: how many ids and dead letters are remembered.
        journal: where every message and its outcome is written, None: nowhere.

    Attributes:
        taps: are shown every message that enters a queue.
    """

    def __init__(self, *, clock: Callable[[], float], limits: BusLimits, journal: Journal | None) -> None:
        self.counters = Counters()
        self.dead: DeadLetters[InFlightMessage] = DeadLetters(limits.dead_letters)
        self.seen: Recent[tuple[str, str]] = Recent(limits.remembered)
        self.taps = Taps()
        self.clock, self.limits, self.journal = clock, limits, journal

    def offer(self, queue: AddressQueue, message: InFlightMessage) -> bool:
        """Settle a new message without waiting, if possible: it enters a queue, is a duplicate, or has expired."""
        if message.envelope.deadline is not None:
            queue.has_deadlines = True
        if queue.offer(message):
            return True
        if self._is_seen(message.envelope):
            self._drop_duplicate(message)
            return True
        return self.purge(queue) and queue.offer(message)

    async def outcome(self, queue: AddressQueue, message: InFlightMessage) -> Envelope | None:
        """Wait until a message is settled; a cancelled sender takes it back if it was not received."""
        assert message.future is not None
        if message.envelope.deadline is not None:
            message.at(message.envelope.deadline, self.clock, partial(self._at_deadline, queue, message))
        try:
            outcome = await message.future  # as Pending.wait does, without its call
        except asyncio.CancelledError:
            if message.place is not None:
                queue.withdraw(message)
                self._cancelled(message)
            elif message.is_request:
                self.write(message, State.FAILED, "its sender was cancelled")
                if message.future.cancelled():
                    message.call_watchers()
            raise
        finally:
            if message.timer is not None:
                message.timer.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def admit(self, message: InFlightMessage) -> bool:
        """Check a message at the entrance of a queue; False: it was settled otherwise."""
        if self.is_over(message):
            return False
        if message.is_admitted:
            return True
        if message.envelope.delivery is _ONCE:
            if self._is_seen(message.envelope):
                self._drop_duplicate(message)
                return False
            self.seen.add((message.envelope.target, message.envelope.id))
        message.is_admitted = True
        self.taps.show(message.envelope)
        if message.frame is not None and self.journal is not None:
            deadline = message.envelope.deadline
            message.record = self.journal.accepted(
                message.frame,
                message.envelope,
                way="request" if message.is_request else "one_way",
                expires_in_s=None if deadline is None else deadline - self.clock(),
                is_kept=message.observer is None,
            )
        if not message.is_request:
            message.settle(None)
        return True

    def deliver(self, message: InFlightMessage) -> bool:
        """Check a message that is about to be received; False: it was settled otherwise."""
        if self.is_over(message):
            return False
        self.counters.delivered += 1
        if message.observer is not None:
            message.notify("delivered")
        return True

    def answer(
        self, message: InFlightMessage | None, outcome: Envelope | Exception, frame: bytes | None = None
    ) -> bool:
        """Settle a request with its answer or error; False: it is not awaited any more.

        `frame`: the answer as bytes, for the journal.
        """
        self.counters.accepted += 1
        if message is None or message.is_settled:
            self.counters.late += 1
            return False
        self.counters.delivered += 1
        self.counters.processed += 1
        message.settle(outcome)
        if message.record is not None:
            self._write_answer(message, outcome, frame)
        return True

    def fail(self, message: InFlightMessage, error: Exception) -> None:
        """Settle a message that no subscription is left to take."""
        if message.is_promised:
            self.dead_letter(message, str(error))
        elif message.is_unwanted:
            self._cancelled(message)
        else:
            self._forget(message)
            self.counters.abandoned += 1
            self.write(message, State.FAILED, f"{type(error).__name__}: {error}")
            message.settle(error)

    def return_to_sender(self, message: InFlightMessage) -> None:
        """Return a message to its sender, which has kept it and may send it elsewhere."""
        if message.is_unwanted:
            self._cancelled(message)
            return
        if message.is_admitted:
            self._unremember(message)
        elif self._is_seen(message.envelope):
            self._drop_duplicate(message)
            return
        self.counters.abandoned += 1
        self.write(message, State.FAILED, f"the last listener at {message.envelope.target!r} left")
        message.settle(no_listener_left(message.envelope))
        message.notify("returned")

    def give_up(self, message: InFlightMessage, error: Exception) -> None:
        """Settle a request that was received but will not be answered."""
        if not message.is_settled:
            self.counters.unanswered += 1
            message.is_given_up = True
            self.write(message, State.FAILED, f"{type(error).__name__}: {error}")
            message.settle(error)
            message.call_watchers()

    def dead_letter(self, message: InFlightMessage, cause: str) -> None:
        """Give up on a message for good."""
        if message.is_promised:
            self.counters.dead += 1
            self.dead.add(message.ticket, message, cause)
            self.write(message, State.DEAD, cause)
            message.notify("dead")
            return
        self.counters.abandoned += 1
        self.write(message, State.FAILED, cause)
        if message.is_request:
            message.settle(given_up(message.envelope, cause))

    def purge(self, queue: AddressQueue) -> bool:
        """Take out what has expired while it waited; False: nothing had."""
        if not queue.has_deadlines:
            return False
        now = self.clock()
        expired = [
            message
            for message in queue.messages()
            if message.envelope.deadline is not None and now >= message.envelope.deadline
        ]
        for message in expired:
            if message.place is not None:
                queue.withdraw(message)
                self._expire(message)
        queue.has_deadlines = any(message.envelope.deadline is not None for message in queue.messages())
        return bool(expired)

    def is_over(self, message: InFlightMessage) -> bool:
        """The sender was cancelled, got its answer from an earlier attempt, or the deadline passed; counted if so."""
        # As message.is_unwanted, without its call: asked twice for every message.
        if message.future is not None and (message.future.done() if message.is_request else message.future.cancelled()):
            self._cancelled(message)
            return True
        if message.envelope.deadline is not None and self.clock() >= message.envelope.deadline:
            self._expire(message)
            return True
        return False

    def _is_seen(self, envelope: Envelope) -> bool:
        return envelope.delivery is _ONCE and (envelope.target, envelope.id) in self.seen

    def _drop_duplicate(self, message: InFlightMessage) -> None:
        envelope = message.envelope
        self.counters.duplicates += 1
        if message.is_request:
            message.settle(Dropped(f"request {envelope.id!r} was sent to {envelope.target!r} before"))
        else:
            message.settle(None)
            message.notify("done")

    def _cancelled(self, message: InFlightMessage) -> None:
        self._forget(message)
        self.counters.cancelled += 1
        self.write(message, State.FAILED, "its sender was cancelled")

    def _expire(self, message: InFlightMessage) -> None:
        self._forget(message)
        self.counters.expired += 1
        if message.is_promised:
            message.has_expired = True
            self.dead.add(message.ticket, message, "its deadline passed before it was received")
            self.write(message, State.EXPIRED, "its deadline passed before it was received")
            message.notify("dead")
        else:
            self.write(message, State.FAILED, "Expired: it was not received in time")
        message.settle(not_received(message.envelope))

    def _write_answer(self, message: InFlightMessage, outcome: Envelope | Exception, frame: bytes | None) -> None:
        if isinstance(outcome, Exception):
            self.write(message, State.FAILED, f"{type(outcome).__name__}: {outcome}")
        elif frame is not None and self.journal is not None:
            self.write(message, State.ANSWERED)
            self.journal.accepted(frame, outcome, way="answer", expires_in_s=None)

    def write(self, message: InFlightMessage, state: State, cause: str = "", effect: bytes | None = None) -> None:
        """Write the state of a message into the journal."""
        if message.record is not None and self.journal is not None:
            self.journal.settled(message.record, state, cause, tries=message.tries, effect=effect)

    def remember(self, message: InFlightMessage) -> None:
        """Drop later messages with the id of an effectively-once message."""
        if message.envelope.delivery is _ONCE:
            self.seen.add((message.envelope.target, message.envelope.id))

    def _forget(self, message: InFlightMessage) -> None:
        """Let the id of a message that was not received be sent again."""
        if message.is_admitted and not message.is_renewed:
            self._unremember(message)

    def _unremember(self, message: InFlightMessage) -> None:
        envelope = message.envelope
        if envelope.delivery is _ONCE:
            self.forget(envelope.target, envelope.id)

    def forget(self, target: str, message_id: str) -> None:
        """Accept a message with this id again."""
        self.seen.pop((target, message_id), None)
        if self.journal is not None:
            self.journal.forgot(target, message_id)

    def _at_deadline(self, queue: AddressQueue, message: InFlightMessage) -> None:
        """Its deadline passed: stop waiting."""
        if message.is_settled:
            return
        if message.place is not None:
            queue.withdraw(message)
            self._expire(message)
        else:
            self.give_up(message, not_answered(message.envelope))
