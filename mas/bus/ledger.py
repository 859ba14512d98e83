"""What becomes of every accepted message: each ends in exactly one counter, and its sender hears of it."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import msgspec

from mas.bus.counters import Counters
from mas.bus.inbox import Inbox, Outcome, Slot
from mas.bus.mailbox import Mailbox
from mas.core.errors import Dropped, Expired
from mas.core.messages import Delivery, Envelope

# Looked up once: in Python 3.11 a member of an enumeration costs a quarter of a microsecond, several times a message.
_ONCE: Final = Delivery.EFFECTIVELY_ONCE
_AT_LEAST_ONCE: Final = Delivery.AT_LEAST_ONCE


class Ledger:
    """The one place that settles messages and counts them.

    Args:
        clock: seconds that deadlines refer to.
        show: called for every message that enters a queue.
        remembered: how many ids of effectively-once messages are remembered; the oldest is forgotten first.

    Raises:
        ValueError: `remembered` is below 1.
    """

    def __init__(self, *, clock: Callable[[], float], show: Callable[[Envelope], None], remembered: int) -> None:
        if remembered < 1:
            raise ValueError(f"remembered is {remembered}; it must be 1 or more")
        self.counters = Counters()
        self._clock = clock
        self._show = show
        self._remembered = remembered
        self._seen: OrderedDict[tuple[str, str], None] = OrderedDict()

    def offer(self, mailbox: Mailbox, slot: Slot) -> bool:
        """Settle a new message without waiting, if possible: it enters a queue, is a duplicate, or has expired."""
        if slot.envelope.deadline is not None:
            mailbox.has_deadlines = True
        if mailbox.offer(slot) or self._is_duplicate(slot):
            return True
        return self.purge(mailbox) and mailbox.offer(slot)

    async def outcome(self, mailbox: Mailbox, slot: Slot) -> Envelope | None:
        """Wait until a message is settled; a cancelled sender takes it back if nobody has received it."""
        assert slot.future is not None
        if slot.envelope.deadline is not None:
            self._wait_for_deadline(mailbox, slot)
        try:
            outcome = await slot.future
        except asyncio.CancelledError:
            if slot.place is not None:
                mailbox.withdraw(slot)
                self._forget(slot)
                self.counters.cancelled += 1
            elif slot.future.cancelled():
                slot.tell_watchers()
            raise
        finally:
            if slot.timer is not None:
                slot.timer.cancel()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def admit(self, slot: Slot) -> bool:
        """Check a message at the entrance of a queue; False: it was settled otherwise."""
        if self._is_over(slot):
            return False
        if slot.is_admitted:
            return True
        if slot.envelope.delivery is _ONCE:
            if self._is_duplicate(slot):
                return False
            self._seen[slot.envelope.target, slot.envelope.id] = None
            if len(self._seen) > self._remembered:
                self._seen.popitem(last=False)
        slot.is_admitted = True
        self._show(slot.envelope)
        if not slot.is_request:
            slot.settle(None)
        return True

    def deliver(self, slot: Slot) -> bool:
        """Check a message that is about to be received; False: it was settled otherwise."""
        if self._is_over(slot):
            return False
        self.counters.delivered += 1
        return True

    def answer(self, slot: Slot | None, outcome: Outcome) -> bool:
        """Settle a request with its answer or error; False: nobody waits for it any more."""
        self.counters.accepted += 1
        if slot is None or slot.is_settled:
            self.counters.late += 1
            return False
        self.counters.delivered += 1
        slot.settle(outcome)
        return True

    def abandon(self, slot: Slot, error: Exception) -> None:
        """Settle a message that nobody is left to take."""
        self._forget(slot)
        if slot.is_unwanted:
            self.counters.cancelled += 1
        else:
            self.counters.abandoned += 1
        slot.settle(error)

    def give_up(self, slot: Slot, error: Exception) -> None:
        """Settle a request that was received but will not be answered."""
        if not slot.is_settled:
            self.counters.unanswered += 1
            slot.is_given_up = True
            slot.settle(error)
            slot.tell_watchers()

    def again(self, inbox: Inbox) -> list[Slot]:
        """The messages of a subscription that leaves, received and not done, which another one must get again."""
        slots = [
            slot
            for taken in inbox.taken.values()
            for slot in taken
            if slot.envelope.delivery is _AT_LEAST_ONCE and not (slot.is_request and slot.is_settled)
        ]
        for slot in slots:
            self.counters.accepted += 1
            slot.receiver = None
            slot.envelope = msgspec.structs.replace(slot.envelope, attempt=slot.envelope.attempt + 1)
        return slots

    def purge(self, mailbox: Mailbox) -> bool:
        """Take out what has expired while it waited; False: nothing had."""
        if not mailbox.has_deadlines:
            return False
        waiting = tuple(mailbox.slots())
        expired = [slot for slot in waiting if self._is_past(slot)]
        for slot in expired:
            if slot.place is not None:
                mailbox.withdraw(slot)
                self._expire(slot)
        mailbox.has_deadlines = any(slot.envelope.deadline is not None for slot in mailbox.slots())
        return bool(expired)

    def _is_past(self, slot: Slot) -> bool:
        deadline = slot.envelope.deadline
        return deadline is not None and self._clock() >= deadline

    def _is_over(self, slot: Slot) -> bool:
        """The sender was cancelled, got its answer from an earlier attempt, or the deadline passed; counted if so."""
        if slot.is_unwanted:
            self._forget(slot)
            self.counters.cancelled += 1
            return True
        if self._is_past(slot):
            self._expire(slot)
            return True
        return False

    def _is_duplicate(self, slot: Slot) -> bool:
        envelope = slot.envelope
        if envelope.delivery is not _ONCE or (envelope.target, envelope.id) not in self._seen:
            return False
        self.counters.duplicates += 1
        if slot.is_request:
            slot.settle(Dropped(f"request {envelope.id!r} was sent to {envelope.target!r} before"))
        else:
            slot.settle(None)
        return True

    def _expire(self, slot: Slot) -> None:
        self._forget(slot)
        self.counters.expired += 1
        slot.settle(Expired(f"message {slot.envelope.id!r} to {slot.envelope.target!r} was not received in time"))

    def _forget(self, slot: Slot) -> None:
        """Let the id of a message that nobody received be sent again."""
        if slot.is_admitted and slot.envelope.delivery is _ONCE:
            self._seen.pop((slot.envelope.target, slot.envelope.id), None)

    def _wait_for_deadline(self, mailbox: Mailbox, slot: Slot) -> None:
        """At the deadline give up; the timer runs in real time, the clock decides."""
        deadline = slot.envelope.deadline
        assert deadline is not None
        assert slot.future is not None
        if slot.future.done():
            return
        remaining = deadline - self._clock()
        if remaining > 0:
            slot.timer = asyncio.get_running_loop().call_later(remaining, self._wait_for_deadline, mailbox, slot)
        elif slot.place is not None:
            mailbox.withdraw(slot)
            self._expire(slot)
        else:
            envelope = slot.envelope
            self.give_up(slot, Expired(f"request {envelope.id!r}: {envelope.target!r} did not answer in time"))
