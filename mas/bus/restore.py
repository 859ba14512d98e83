"""What a bus takes over from its journal: messages to deliver again, dead letters, and ids not to accept again."""

import time
from collections.abc import Callable

import msgspec

from mas.bus.journal import Journal
from mas.bus.ledger import Ledger
from mas.bus.record import Record, State
from mas.bus.redelivery import Redelivery
from mas.bus.slot import Slot


def restore(
    journal: Journal,
    ledger: Ledger,
    redelivery: Redelivery,
    clock: Callable[[], float],
    ticket: Callable[[], int],
) -> None:
    """Fill a new bus. Dead letters count as accepted, so that its counters add up.

    Raises:
        JournalError: the journal cannot be read, or a bus has it already. Malformed: a payload's class is unknown here.
    """
    open_records, dead, seen, forgotten = journal.attach()
    for target, message_id in seen:
        ledger.remember_id(target, message_id)
    for record in open_records:
        redelivery.restore(_slot(record, ticket(), clock))
    ledger.dead.forgotten = forgotten
    for record in dead:
        slot = _slot(record, ticket(), clock)
        slot.is_admitted = True
        is_expired = record.state is State.EXPIRED
        ledger.counters.accepted += 1
        ledger.counters.expired += is_expired
        ledger.counters.dead += not is_expired
        ledger.dead.add(slot, record.cause, is_expired=is_expired, died_at=record.ended_at)


def _slot(record: Record, ticket: int, clock: Callable[[], float]) -> Slot:
    """The message as it stands; its deadline moves from the clock on the wall to the bus's own."""
    deadline = None if record.deadline is None else clock() + record.deadline - time.time()
    envelope = msgspec.structs.replace(record.envelope, attempt=record.attempt, deadline=deadline)
    slot = Slot(envelope, ticket, is_request=False)
    slot.tries = record.tries
    slot.is_renewed = record.attempt > 1
    slot.record = record.seq
    return slot
