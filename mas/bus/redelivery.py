"""What is delivered again: messages given back, left behind by a subscription, or re-driven dead letters.

Messages whose address has no subscription any more wait here as orphans, until it has one again.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from mas.bus.address_queue import AddressQueue
from mas.bus.in_flight import InFlightMessage, SubscriptionQueue
from mas.bus.journal import Journal
from mas.bus.journal_tables import Record, State
from mas.bus.settlement import Settlement
from mas.bus.undelivered import no_listener_left
from mas.core.messages import Delivery


class Redelivery:
    """Decides whether a message that was not handled gets another attempt, and when.

    Args:
        settlement: counts what becomes of every message; timers wait in real time and look at its clock again.
        queues: address -> queue, of every address with a subscription.
        ticket: the next position in the order of acceptance.
    """

    def __init__(
        self, settlement: Settlement, queues: Mapping[str, AddressQueue], *, ticket: Callable[[], int]
    ) -> None:
        self._settlement, self._queues, self._ticket = settlement, queues, ticket
        self._counters, self._limits = settlement.counters, settlement.limits
        self._clock, self._journal = settlement.clock, settlement.journal
        self._orphans: dict[str, list[InFlightMessage]] = {}

    def give_back(self, message: InFlightMessage, delay_s: float | None, cause: str, is_tried: bool) -> bool:
        """A receiver gave a message back; see `Subscription.nack`. `delay_s` None: it is never delivered again."""
        queue = self._queues[message.envelope.target]
        if delay_s and queue.delayed >= self._limits.delayed and not queue.is_delayed(message):
            delay_s, cause = None, f"{cause}; {queue.delayed} others wait already to be delivered again"
        message.due = self._clock() + (delay_s or 0.0)
        if not self._take_back(message, cause, is_tried=is_tried, is_last=delay_s is None):
            queue.release(message)
            return False
        queue.give_back(message, message.due)
        self._resume(queue, delay_s or 0.0)
        self._give_up_waiting(queue)
        return True

    def withdrawn(self, subscription: SubscriptionQueue) -> None:
        """A subscription takes nothing new."""
        queue = self._queues.get(subscription.address)
        if queue is not None:
            self._give_up_waiting(queue)

    def _give_up_waiting(self, queue: AddressQueue) -> None:
        """With no subscription that takes anything new, return observed unqueued messages to the sender."""
        if not all(subscription.closed for subscription in queue.subscriptions):
            return
        for message in [
            message for message in queue.messages() if message.observer is not None and not message.is_queued
        ]:
            queue.withdraw(message)
            self._settlement.return_to_sender(message)

    def leave(self, subscription: SubscriptionQueue, *, has_others: bool) -> list[InFlightMessage]:
        """Count what a subscription that leaves received and did not finish; returns what must be delivered again."""
        cause = f"its listener at {subscription.address!r} left before it was done"
        again = []
        for message in [message for taken in subscription.taken.values() for message in taken]:
            is_answerable = has_others and message.envelope.delivery is Delivery.AT_LEAST_ONCE
            if not message.is_request or message.is_settled or is_answerable:
                is_kept = has_others or message.observer is None
                again += [message] if self._take_back(message, cause, is_kept=is_kept) else []
            else:
                self._counters.processed += 1
        subscription.taken.clear()
        return again

    def left_behind(self, messages: Iterable[InFlightMessage], address: str, *, is_closed: bool) -> None:
        """The last listener of an address left these: what was promised waits for the next one, in order.

        A closed bus has no next one: there they become dead letters, or stay in the journal for the next process.
        What is observed is reported to its sender instead, which still has it.
        """
        for message in messages:
            if message.observer is not None:
                self._settlement.return_to_sender(message)
            elif message.is_promised and (not is_closed or message.record is not None):
                self._orphans.setdefault(address, []).append(message)
            else:
                self._settlement.fail(message, no_listener_left(message.envelope))

    def adopt(self, address: str, queue: AddressQueue) -> None:
        """An address has a subscription: orphans that its principal may read come first."""
        orphans, now = self._orphans.pop(address, []), self._clock()
        for message in orphans:
            readers = message.envelope.visibility
            if readers is not None and queue.principal not in readers:
                self._orphans.setdefault(address, []).append(message)
            else:
                queue.requeue(message, now)
                queue.has_deadlines = queue.has_deadlines or message.envelope.deadline is not None
        for due in {message.due for message in orphans if message.due > now}:
            self._resume(queue, due - now)

    def close(self) -> None:
        """The bus is closed: orphans become dead letters or stay in the journal; what is observed returns."""
        for queue in tuple(self._queues.values()):
            for message in [message for message in queue.messages() if message.observer is not None]:
                if message.is_renewed or not message.is_queued:
                    queue.withdraw(message)
                    self._settlement.return_to_sender(message)
        for address, messages in tuple(self._orphans.items()):
            del self._orphans[address]
            self.left_behind(messages, address, is_closed=True)

    def waiting(self) -> int:
        """How many messages wait for a subscription; expired ones are taken out first."""
        for address, messages in tuple(self._orphans.items()):
            kept = [message for message in messages if not self._settlement.is_over(message)]
            if kept:
                self._orphans[address] = kept
            else:
                del self._orphans[address]
        return sum(map(len, self._orphans.values()))

    def redrive(self, message_id: str | None) -> int:
        """Deliver dead letters again, behind what waits; see `MemoryBus.redrive`."""
        number = 0
        for message in self._settlement.dead.take(message_id):
            if self._revive(message):
                number += 1
                self._insert(message)
        return number

    def restore(self, journal: Journal) -> None:
        """Take over what the journal holds: messages to deliver again, dead letters, and ids not to accept again.

        Dead letters count as accepted, so that the counters add up.

        Raises:
            JournalError: the journal cannot be read, or a bus has it already. Malformed: a payload's class is unknown.
        """
        open_records, dead, seen, forgotten = journal.attach()
        for key in seen:
            self._settlement.seen.add(key)
        for record in open_records:
            message = self._restored(record)
            self._renew(message)
            self._orphans.setdefault(message.envelope.target, []).append(message)
        letters = self._settlement.dead
        letters.forgotten = forgotten
        for record in dead:
            message = self._restored(record)
            message.has_expired = record.state is State.EXPIRED
            self._counters.expired += message.has_expired
            self._counters.dead += not message.has_expired
            letters.add(message.ticket, message, record.cause, died_at=record.ended_at)

    def _restored(self, record: Record) -> InFlightMessage:
        """The message as it stands; its deadline moves from the clock on the wall to the bus's own."""
        deadline = None if record.deadline is None else self._clock() + record.deadline - time.time()
        envelope = msgspec.structs.replace(record.envelope, attempt=record.attempt, deadline=deadline)
        message = InFlightMessage(envelope, ticket=self._ticket(), is_request=False)
        message.tries = record.tries
        message.is_renewed = record.attempt > 1
        message.record = record.seq
        message.is_admitted = True
        self._counters.accepted += 1
        return message

    def _insert(self, message: InFlightMessage) -> None:
        message.ticket = self._ticket()
        address, readers = message.envelope.target, message.envelope.visibility
        queue = self._queues.get(address)
        if queue is None or (readers is not None and queue.principal not in readers):
            self._orphans.setdefault(address, []).append(message)
        elif not queue.offer(message):
            queue.park(message)

    def _take_back(
        self,
        message: InFlightMessage,
        cause: str,
        *,
        is_tried: bool = True,
        is_last: bool = False,
        is_kept: bool = True,
    ) -> bool:
        """Count a received message as not handled; False: it is not to be delivered again.

        `is_kept` False: it goes back to its sender, who knows what to do after the last attempt.
        """
        if message.is_request and message.is_settled:
            self._counters.processed += 1
            return False
        self._counters.delivered -= 1
        message.tries += is_tried
        is_spent = is_kept and message.tries >= self._limits.max_attempts
        if is_last or is_spent or not (message.is_request or message.is_promised):
            self._settlement.dead_letter(message, cause)
            return False
        self._counters.redelivered += 1
        self._renew(message)
        if message.observer is not None:
            message.notify("nacked")
        return True

    def _renew(self, message: InFlightMessage) -> None:
        message.receiver = None
        message.is_renewed = True
        message.envelope = msgspec.structs.replace(message.envelope, attempt=message.envelope.attempt + 1)
        if message.record is not None and self._journal is not None:
            self._journal.renewed(message.record, message.envelope.attempt, message.tries)

    def _revive(self, message: InFlightMessage) -> bool:
        """Take a dead letter back into delivery, without a deadline; False: its sender has sent it again since."""
        envelope = message.envelope
        if not message.has_expired:
            self._counters.dead -= 1
        else:
            message.has_expired = False
            self._counters.expired -= 1
            was_forgotten = envelope.delivery is Delivery.EFFECTIVELY_ONCE and not message.is_renewed
            if was_forgotten and (envelope.target, envelope.id) in self._settlement.seen:
                self._counters.duplicates += 1
                self._settlement.write(message, State.FAILED, "sent again after it had expired")
                return False
            self._settlement.remember(message)
        message.tries, message.observer = 0, None  # its sender was notified that it is dead
        message.envelope = msgspec.structs.replace(envelope, deadline=None)
        self._renew(message)
        return True

    def _resume(self, queue: AddressQueue, delay_s: float) -> None:
        """Deliver again what is due; the timer runs in real time, the clock decides."""
        if delay_s > 0:
            asyncio.get_running_loop().call_later(delay_s, self._wake, queue, self._clock() + delay_s)
        queue.resume(self._clock())

    def _wake(self, queue: AddressQueue, due: float) -> None:
        self._resume(queue, max(0.0, due - self._clock()))

    def resume_due(self) -> None:
        """Deliver again whatever is due by the clock, without waiting for its timer."""
        for queue in tuple(self._queues.values()):
            queue.resume(self._clock())
