"""What is delivered again: messages given back, left behind by a listener, or re-driven after they died.

Messages that nobody listens for any more wait here as orphans, until somebody listens at their address again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

import msgspec

from mas.bus.inbox import Inbox
from mas.bus.journal import Journal
from mas.bus.ledger import Ledger
from mas.bus.limits import Limits
from mas.bus.mailbox import Mailbox
from mas.bus.record import State
from mas.bus.slot import Slot
from mas.core.errors import NoRoute
from mas.core.messages import Delivery


class Redelivery:
    """Decides whether a message that was not handled gets another attempt, and when.

    Args:
        ledger: counts what becomes of every message.
        mailboxes: address -> mailbox, of every address that somebody listens at.
        clock: seconds; timers wait in real time and look at it again.
        ticket: the next position in the order of acceptance.
    """

    def __init__(
        self,
        ledger: Ledger,
        mailboxes: Mapping[str, Mailbox],
        *,
        clock: Callable[[], float],
        ticket: Callable[[], int],
        limits: Limits,
        journal: Journal | None,
    ) -> None:
        self._ledger = ledger
        self._counters = ledger.counters
        self._mailboxes = mailboxes
        self._clock = clock
        self._ticket = ticket
        self._limits = limits
        self._journal = journal
        self._orphans: dict[str, list[Slot]] = {}

    def give_back(self, slot: Slot, delay_s: float | None, cause: str, is_tried: bool) -> bool:
        """A receiver gave a message back; see `Subscription.nack`. `delay_s` None: it is never delivered again."""
        mailbox = self._mailboxes[slot.envelope.target]
        if delay_s and mailbox.halted >= self._limits.delayed and not mailbox.is_halted(slot):
            delay_s, cause = None, f"{cause}; {mailbox.halted} others wait already to be delivered again"
        slot.due = self._clock() + (delay_s or 0.0)
        if not self._take_back(slot, cause, is_tried=is_tried, is_last=delay_s is None):
            mailbox.release(slot)
            return False
        mailbox.give_back(slot, slot.due)
        self._resume(mailbox, delay_s or 0.0)
        self._give_up_waiting(mailbox)
        return True

    def withdrawn(self, inbox: Inbox) -> None:
        """A subscription takes nothing new."""
        mailbox = self._mailboxes.get(inbox.address)
        if mailbox is not None:
            self._give_up_waiting(mailbox)

    def _give_up_waiting(self, mailbox: Mailbox) -> None:
        """Where nobody takes anything new, what is watched and in no queue goes back to its sender, who has kept it."""
        if not all(inbox.closed for inbox in mailbox.inboxes):
            return
        for slot in [slot for slot in mailbox.slots() if slot.watch is not None and not slot.is_queued]:
            mailbox.withdraw(slot)
            self._ledger.forgo(slot)

    def leave(self, inbox: Inbox, *, has_others: bool) -> list[Slot]:
        """Count what a subscription that leaves received and did not finish; returns what must be delivered again."""
        cause = f"its listener at {inbox.address!r} left before it was done"
        again = []
        for slot in [slot for taken in inbox.taken.values() for slot in taken]:
            is_answerable = has_others and slot.envelope.delivery is Delivery.AT_LEAST_ONCE
            if not slot.is_request or slot.is_settled or is_answerable:
                is_kept = has_others or slot.watch is None
                again += [slot] if self._take_back(slot, cause, is_kept=is_kept) else []
            else:
                self._counters.processed += 1
        inbox.taken.clear()
        return again

    def left_behind(self, slots: Iterable[Slot], address: str, *, is_closed: bool) -> None:
        """The last listener of an address left these: what was promised waits for the next one, in order.

        A closed bus has no next one: there they die, or stay in the journal for the next process. What is watched goes
        back to its sender instead, who has kept it.
        """
        for slot in slots:
            if slot.watch is not None:
                self._ledger.forgo(slot)
            elif slot.is_promised and (not is_closed or slot.record is not None):
                self._orphans.setdefault(address, []).append(slot)
            else:
                error = NoRoute(f"message {slot.envelope.id!r}: the last listener at {address!r} left")
                self._ledger.abandon(slot, error)

    def adopt(self, address: str, mailbox: Mailbox) -> None:
        """Somebody listens at an address: what waited for that and may be read comes first."""
        orphans, now = self._orphans.pop(address, []), self._clock()
        for slot in orphans:
            readers = slot.envelope.visibility
            if readers is not None and mailbox.principal not in readers:
                self._orphans.setdefault(address, []).append(slot)
            else:
                mailbox.stand(slot, now)
                mailbox.has_deadlines = mailbox.has_deadlines or slot.envelope.deadline is not None
        for due in {slot.due for slot in orphans if slot.due > now}:
            self._resume(mailbox, due - now)

    def close(self) -> None:
        """The bus is closed: orphans die, or stay in the journal; what was given back goes to a sender that kept it."""
        for mailbox in tuple(self._mailboxes.values()):
            for slot in [slot for slot in mailbox.slots() if slot.watch is not None]:
                if slot.is_renewed or not slot.is_queued:
                    mailbox.withdraw(slot)
                    self._ledger.forgo(slot)
        for address, slots in tuple(self._orphans.items()):
            del self._orphans[address]
            self.left_behind(slots, address, is_closed=True)

    def waiting(self) -> int:
        """How many messages wait for a listener; what has expired is taken out first."""
        for address, slots in tuple(self._orphans.items()):
            kept = [slot for slot in slots if not self._ledger.is_over(slot)]
            if kept:
                self._orphans[address] = kept
            else:
                del self._orphans[address]
        return sum(map(len, self._orphans.values()))

    def redrive(self, message_id: str | None) -> int:
        """Deliver dead letters again, behind what waits; see `MemoryBus.redrive`."""
        number = 0
        for slot, is_expired in self._ledger.dead.take(message_id):
            if self._revive(slot, is_expired=is_expired):
                number += 1
                self._insert(slot)
        return number

    def restore(self, slot: Slot) -> None:
        """Put a message from the journal where it waits for its listener."""
        self._counters.accepted += 1
        slot.is_admitted = True
        self._renew(slot)
        self._orphans.setdefault(slot.envelope.target, []).append(slot)

    def _insert(self, slot: Slot) -> None:
        slot.ticket = self._ticket()
        address, readers = slot.envelope.target, slot.envelope.visibility
        mailbox = self._mailboxes.get(address)
        if mailbox is None or (readers is not None and mailbox.principal not in readers):
            self._orphans.setdefault(address, []).append(slot)
        elif not mailbox.offer(slot):
            mailbox.park(slot)

    def _take_back(
        self, slot: Slot, cause: str, *, is_tried: bool = True, is_last: bool = False, is_kept: bool = True
    ) -> bool:
        """Count a received message as not handled; False: it is not to be delivered again.

        `is_kept` False: it goes back to its sender, who knows what to do after the last attempt.
        """
        if slot.is_request and slot.is_settled:
            self._counters.processed += 1
            return False
        self._counters.delivered -= 1
        slot.tries += is_tried
        is_spent = is_kept and slot.tries >= self._limits.max_attempts
        if is_last or is_spent or not (slot.is_request or slot.is_promised):
            self._ledger.die(slot, cause)
            return False
        self._counters.redelivered += 1
        self._renew(slot)
        if slot.watch is not None:
            slot.became("back")
        return True

    def _renew(self, slot: Slot) -> None:
        slot.receiver = None
        slot.is_renewed = True
        slot.envelope = msgspec.structs.replace(slot.envelope, attempt=slot.envelope.attempt + 1)
        if slot.record is not None and self._journal is not None:
            self._journal.renewed(slot.record, slot.envelope.attempt, slot.tries)

    def _revive(self, slot: Slot, *, is_expired: bool) -> bool:
        """Take a dead letter back into delivery, without a deadline; False: its sender has sent it again since."""
        envelope = slot.envelope
        if not is_expired:
            self._counters.dead -= 1
        else:
            self._counters.expired -= 1
            was_forgotten = envelope.delivery is Delivery.EFFECTIVELY_ONCE and not slot.is_renewed
            if was_forgotten and (envelope.target, envelope.id) in self._ledger.seen:
                self._counters.duplicates += 1
                self._ledger.write(slot, State.FAILED, "sent again after it had expired")
                return False
            self._ledger.remember(slot)
        slot.tries, slot.watch = 0, None  # its sender was told that it died
        slot.envelope = msgspec.structs.replace(envelope, deadline=None)
        self._renew(slot)
        return True

    def _resume(self, mailbox: Mailbox, delay_s: float) -> None:
        """Deliver again what is due; the timer runs in real time, the clock decides."""
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._wake, mailbox, self._clock() + delay_s)
        mailbox.resume(self._clock())

    def _wake(self, mailbox: Mailbox, due: float) -> None:
        self._resume(mailbox, max(0.0, due - self._clock()))

    def resume_due(self) -> None:
        """Deliver again whatever is due by the clock, without waiting for its timer."""
        for mailbox in tuple(self._mailboxes.values()):
            mailbox.resume(self._clock())
