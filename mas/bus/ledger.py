"""What becomes of every accepted message: each ends in exactly one counter, and its sender hears of it."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from mas.bus.counters import Counters
from mas.bus.dead import DeadLetters
from mas.bus.journal import Journal
from mas.bus.limits import Limits
from mas.bus.mailbox import Mailbox
from mas.bus.record import State
from mas.bus.slot import Slot
from mas.core.errors import Dropped, Expired, NoRoute, RemoteError
from mas.core.messages import Delivery, Envelope

# Looked up once: in Python 3.11 a member of an enumeration costs a quarter of a microsecond, several times a message.
_ONCE: Final = Delivery.EFFECTIVELY_ONCE


class Ledger:
    """The one place that settles messages and counts them.

    Args:
        clock: seconds that deadlines refer to.
        show: called for every message that enters a queue.
        limits: how many ids and dead letters are remembered.
        journal: where every message and its outcome is written, None: nowhere.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        show: Callable[[Envelope], None],
        limits: Limits,
        journal: Journal | None,
    ) -> None:
        self.counters = Counters()
        self.dead = DeadLetters(limits.dead_letters)
        self.seen: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._limits = limits
        self._journal = journal
        self._clock = clock
        self._show = show

    def offer(self, mailbox: Mailbox, slot: Slot) -> bool:
        """Settle a new message without waiting, if possible: it enters a queue, is a duplicate, or has expired."""
        if slot.envelope.deadline is not None:
            mailbox.has_deadlines = True
        if mailbox.offer(slot):
            return True
        if self._is_seen(slot.envelope):
            self._drop_duplicate(slot)
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
                self._cancelled(slot)
            elif slot.is_request:
                self.write(slot, State.FAILED, "its sender was cancelled")
                if slot.future.cancelled():
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
        if self.is_over(slot):
            return False
        if slot.is_admitted:
            return True
        if slot.envelope.delivery is _ONCE:
            if self._is_seen(slot.envelope):
                self._drop_duplicate(slot)
                return False
            self.remember_id(slot.envelope.target, slot.envelope.id)
        slot.is_admitted = True
        self._show(slot.envelope)
        if slot.frame is not None and self._journal is not None:
            deadline = slot.envelope.deadline
            slot.record = self._journal.accepted(
                slot.frame,
                slot.envelope,
                way="request" if slot.is_request else "one_way",
                expires_in_s=None if deadline is None else deadline - self._clock(),
                is_kept=slot.watch is None,
            )
        if not slot.is_request:
            slot.settle(None)
        return True

    def deliver(self, slot: Slot) -> bool:
        """Check a message that is about to be received; False: it was settled otherwise."""
        if self.is_over(slot):
            return False
        self.counters.delivered += 1
        if slot.watch is not None:
            slot.became("taken")
        return True

    def answer(self, slot: Slot | None, outcome: Envelope | Exception, frame: bytes | None = None) -> bool:
        """Settle a request with its answer or error; False: nobody waits for it any more.

        `frame`: the answer as bytes, for the journal.
        """
        self.counters.accepted += 1
        if slot is None or slot.is_settled:
            self.counters.late += 1
            return False
        self.counters.delivered += 1
        self.counters.processed += 1
        slot.settle(outcome)
        if slot.record is not None:
            self._write_answer(slot, outcome, frame)
        return True

    def abandon(self, slot: Slot, error: Exception) -> None:
        """Settle a message that nobody is left to take."""
        if slot.is_promised:
            self.die(slot, str(error))
        elif slot.is_unwanted:
            self._cancelled(slot)
        else:
            self._forget(slot)
            self.counters.abandoned += 1
            self.write(slot, State.FAILED, f"{type(error).__name__}: {error}")
            slot.settle(error)

    def forgo(self, slot: Slot) -> None:
        """Leave a message to its sender, who has kept it and may send it again."""
        if slot.is_unwanted:
            self._cancelled(slot)
            return
        if slot.is_admitted:
            self._unremember(slot)
        elif self._is_seen(slot.envelope):
            self._drop_duplicate(slot)
            return
        self.counters.abandoned += 1
        cause = f"the last listener at {slot.envelope.target!r} left"
        self.write(slot, State.FAILED, cause)
        slot.settle(NoRoute(f"message {slot.envelope.id!r}: {cause}"))
        slot.became("left")

    def give_up(self, slot: Slot, error: Exception) -> None:
        """Settle a request that was received but will not be answered."""
        if not slot.is_settled:
            self.counters.unanswered += 1
            slot.is_given_up = True
            self.write(slot, State.FAILED, f"{type(error).__name__}: {error}")
            slot.settle(error)
            slot.tell_watchers()

    def die(self, slot: Slot, cause: str) -> None:
        """Give up on a message for good."""
        if slot.is_promised:
            self.counters.dead += 1
            self.dead.add(slot, cause)
            self.write(slot, State.DEAD, cause)
            slot.became("dead")
            return
        self.counters.abandoned += 1
        self.write(slot, State.FAILED, cause)
        if slot.is_request:
            slot.settle(RemoteError(f"request {slot.envelope.id!r} to {slot.envelope.target!r} was given up: {cause}"))

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

    def is_over(self, slot: Slot) -> bool:
        """The sender was cancelled, got its answer from an earlier attempt, or the deadline passed; counted if so."""
        # As slot.is_unwanted, without its call: asked twice for every message.
        if slot.future is not None and (slot.future.done() if slot.is_request else slot.future.cancelled()):
            self._cancelled(slot)
            return True
        if slot.envelope.deadline is not None and self._is_past(slot):
            self._expire(slot)
            return True
        return False

    def _is_seen(self, envelope: Envelope) -> bool:
        return envelope.delivery is _ONCE and (envelope.target, envelope.id) in self.seen

    def _drop_duplicate(self, slot: Slot) -> None:
        envelope = slot.envelope
        self.counters.duplicates += 1
        if slot.is_request:
            slot.settle(Dropped(f"request {envelope.id!r} was sent to {envelope.target!r} before"))
        else:
            slot.settle(None)
            slot.became("done")

    def _cancelled(self, slot: Slot) -> None:
        self._forget(slot)
        self.counters.cancelled += 1
        self.write(slot, State.FAILED, "its sender was cancelled")

    def _expire(self, slot: Slot) -> None:
        self._forget(slot)
        self.counters.expired += 1
        if slot.is_promised:
            self.dead.add(slot, "its deadline passed before it was received", is_expired=True)
            self.write(slot, State.EXPIRED, "its deadline passed before it was received")
            slot.became("dead")
        else:
            self.write(slot, State.FAILED, "Expired: it was not received in time")
        slot.settle(Expired(f"message {slot.envelope.id!r} to {slot.envelope.target!r} was not received in time"))

    def _write_answer(self, slot: Slot, outcome: Envelope | Exception, frame: bytes | None) -> None:
        if isinstance(outcome, Exception):
            self.write(slot, State.FAILED, f"{type(outcome).__name__}: {outcome}")
        elif frame is not None and self._journal is not None:
            self.write(slot, State.ANSWERED)
            self._journal.answered(frame, outcome)

    def write(self, slot: Slot, state: State, cause: str = "", effect: bytes | None = None) -> None:
        """Note in the journal what became of a message."""
        if slot.record is not None and self._journal is not None:
            self._journal.settled(slot.record, state, cause, tries=slot.tries, effect=effect)

    def remember(self, slot: Slot) -> None:
        """Drop later messages with the id of an effectively-once message."""
        if slot.envelope.delivery is _ONCE:
            self.remember_id(slot.envelope.target, slot.envelope.id)

    def remember_id(self, target: str, message_id: str) -> None:
        """Drop later messages with this id; the oldest id is forgotten beyond the bound."""
        self.seen[target, message_id] = None
        if len(self.seen) > self._limits.remembered:
            self.seen.popitem(last=False)

    def _forget(self, slot: Slot) -> None:
        """Let the id of a message that nobody received be sent again."""
        if slot.is_admitted and not slot.is_renewed:
            self._unremember(slot)

    def _unremember(self, slot: Slot) -> None:
        envelope = slot.envelope
        if envelope.delivery is _ONCE:
            self.forget(envelope.target, envelope.id)

    def forget(self, target: str, message_id: str) -> None:
        """Accept a message with this id again."""
        self.seen.pop((target, message_id), None)
        if self._journal is not None:
            self._journal.forgot(target, message_id)

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
