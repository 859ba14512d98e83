"""A bus inside one process and one event loop.

Without deadlines it makes no task and no timer and depends on no clock: the same calls give the same order.
Leaves out on purpose: a wire, and threads (call it from its own event loop only).
"""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec

from mas.bus.counters import DetailedStatistics
from mas.bus.dead import DeadLetter
from mas.bus.inbox import Inbox
from mas.bus.journal import Journal
from mas.bus.ledger import Ledger
from mas.bus.limits import Limits
from mas.bus.mailbox import Mailbox
from mas.bus.parts import Parts, PartStream, Take
from mas.bus.record import State
from mas.bus.redelivery import Redelivery
from mas.bus.restore import restore
from mas.bus.slot import Slot
from mas.bus.taps import Taps
from mas.bus.watch import Watch
from mas.bus.wire import encode
from mas.core.errors import Closed, Denied, Dropped, MasError, NoRoute, RemoteError
from mas.core.messages import Delivery, Envelope, Payload
from mas.core.naming import did_you_mean, listed


class MemoryBus:
    """The `Bus` contract in memory.

    A request reaches its handler with `reply_to` set by the bus, and with the earlier of its deadline and `timeout_s`
    as deadline. When a subscription ends, what it had not handed out goes to the address's other subscriptions, and so
    does what it had handed out and was not `done`, with the next `attempt`; best-effort messages do not, and requests
    only `at_least_once`. One-way messages wait for the next subscription if there is no other; a request whose listener
    left without an answer raises Closed, and one that nobody is left to take raises NoRoute; see docs/delivery.md.

    Args:
        clock: seconds that deadlines refer to; timers wait in real time and look at it again.
        limits: how many ids and dead letters are remembered, and how often a message is tried.
        journal: keeps messages and their outcomes beyond this process; None: nothing is kept. What it holds and was not
            processed waits for subscriptions. The caller closes it, after the bus.

    Raises:
        JournalError: the journal cannot be read, or a bus has it already.
        Malformed: it holds a message whose payload's class was not imported.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        journal: Journal | None = None,
    ) -> None:
        self._clock = clock
        self._taps = Taps()
        self._journal = journal
        self._ledger = Ledger(clock=clock, show=self._taps.show, limits=limits, journal=journal)
        self._counters = self._ledger.counters
        self._mailboxes: dict[str, Mailbox] = {}
        self._pending: dict[str, Slot] = {}
        self.parts = Parts()
        self._tickets = itertools.count()
        self._redelivery = Redelivery(
            self._ledger,
            self._mailboxes,
            clock=clock,
            ticket=self._tickets.__next__,
            limits=limits,
            journal=journal,
        )
        self._is_closed = False
        if journal is not None:
            restore(journal, self._ledger, self._redelivery, clock, self._tickets.__next__)

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to."""
        return self._clock()

    async def publish(self, envelope: Envelope, *, wait: bool = True, watch: Watch | None = None) -> None:
        """Deliver one way; see `Bus.publish`. A duplicate is counted and dropped without an error.

        A best-effort message never waits; where there is no room it is counted and dropped, without an error unless
        `wait` is False. With a journal in group mode, returns once it is on the disk. `watch` hears what becomes of it.

        Raises:
            Malformed: the journal cannot hold the payload. JournalError: it is closed, or its disk has failed.
        """
        mailbox = self._route(envelope)
        slot = Slot(envelope, next(self._tickets), is_request=False, watch=watch)
        if self._journal is not None:
            self._journal.check()
            slot.frame = encode(envelope)
        self._counters.accepted += 1
        if self._ledger.offer(mailbox, slot):
            if isinstance(slot.outcome, Exception):
                raise slot.outcome
        elif not wait or envelope.delivery is Delivery.BEST_EFFORT:
            self._counters.refused += 1
            if not wait:
                raise Dropped(
                    f"message {envelope.id!r}: the queue of {envelope.target!r} is full; wait, or raise its credit"
                )
        else:
            slot.future = asyncio.get_running_loop().create_future()
            mailbox.park(slot)
            await self._ledger.outcome(mailbox, slot)
        if slot.record is not None and self._journal is not None:
            await self._journal.is_safe()

    async def request(
        self,
        envelope: Envelope,
        *,
        timeout_s: float | None = None,
        watch: Watch | None = None,
        take: Take | None = None,
    ) -> Envelope:
        """Deliver and wait for the answer; see `Bus.request` and `publish`. A duplicate raises Dropped.

        `take` is given the parts of the answer, None: nobody reads them.
        """
        mailbox = self._route(envelope)
        ticket = next(self._tickets)
        token = f"answer-{ticket}"
        deadline = envelope.deadline
        if timeout_s is not None:
            timeout = self.now() + timeout_s
            deadline = timeout if deadline is None else min(deadline, timeout)
        envelope = msgspec.structs.replace(envelope, reply_to=token, deadline=deadline)
        slot = Slot(envelope, ticket, is_request=True, watch=watch)
        if self._journal is not None:
            self._journal.check()
            slot.frame = encode(slot.envelope)
        slot.future = asyncio.get_running_loop().create_future()
        self._counters.accepted += 1
        self._pending[token] = slot
        if take is not None:
            self.parts.open(token, take)
        if not self._ledger.offer(mailbox, slot):
            mailbox.park(slot)
        try:
            answer = await self._ledger.outcome(mailbox, slot)
        finally:
            del self._pending[token]
            self.parts.close(token)
        assert answer is not None
        return answer

    def stream(self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256) -> PartStream:
        """Deliver a request and read its answer in parts; see `Bus.stream`."""

        async def ask(stream: PartStream) -> Envelope:
            return await self.request(envelope, timeout_s=timeout_s, take=stream.take)

        return PartStream(envelope, ask, queue=queue, counters=self.parts.counters)

    def part(self, request: Envelope, payload: Payload) -> bool:
        """Send a part of the answer to a request; see `Bus.part`."""
        slot = self._asked(request)
        return self.parts.send(request, payload, None if slot is None or not slot.receiver else slot.receiver.principal)

    async def reply(self, request: Envelope, answer: Envelope) -> None:
        """Answer a request; see `Bus.reply`. The answer's `correlation` is set to the request's id.

        Raises:
            Denied: the requester is not among the readers of the answer; the request still waits.
            Malformed: the journal cannot hold the payload; the request still waits.
        """
        reader = request.source if request.principal is None else request.principal
        if answer.visibility is not None and reader not in answer.visibility:
            raise Denied(
                f"answer {answer.id!r}: the requester {reader!r} is not in its visibility: {listed(answer.visibility)}"
            )
        if answer.correlation != request.id:
            answer = msgspec.structs.replace(answer, correlation=request.id)
        answer = self.parts.closing(request, answer)
        frame = None if self._journal is None else encode(answer)
        if self._ledger.answer(self._asked(request), answer, frame):
            self.parts.close(request.reply_to)
            self._taps.show(answer)

    async def fail(self, request: Envelope, error: Exception) -> None:
        """Answer a request with an error; see `Bus.fail`."""
        if not isinstance(error, MasError):
            remote = RemoteError(f"{request.target!r} failed on {request.id!r}: {type(error).__name__}: {error}")
            remote.__cause__ = error
            error = remote
        self._ledger.answer(self._asked(request), error)
        self.parts.close(request.reply_to)

    def subscribe(self, address: str, *, principal: str | None = None, credit: int = 64) -> Inbox:
        """Listen at an address while the result is entered; see `Bus.subscribe`.

        Raises:
            ValueError: credit is below 1.
            On entry: Closed; Denied when the address already has subscriptions of another principal.
        """
        return Inbox(
            address,
            principal=address if principal is None else principal,
            credit=credit,
            enter=self._enter,
            leave=self._leave,
            deliver=self._ledger.deliver,
            release=self._release,
            finish=self._finish,
            give_back=self._redelivery.give_back,
            withdrawn=self._redelivery.withdrawn,
        )

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        """Call `watch` for every message that enters a queue and every answer that is awaited; see `Bus.tap`."""
        return self._taps.add(watch, principal=principal)

    def statistics(self) -> DetailedStatistics:
        """Counters so far; what has expired or is due again is taken out of its queue first."""
        self._redelivery.resume_due()
        for mailbox in tuple(self._mailboxes.values()):
            self._ledger.purge(mailbox)
        return self._counters.freeze(
            waiting=self._redelivery.waiting() + sum(len([*box.slots()]) for box in self._mailboxes.values()),
            subscriptions=sum(len(mailbox.inboxes) for mailbox in self._mailboxes.values()),
            forgotten=self._ledger.dead.forgotten,
            parts=self.parts.counters.freeze(),
        )

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Messages whose delivery was promised and given up on, oldest first, payloads and all."""
        return self._ledger.dead.all()

    def redrive(self, message_id: str | None = None) -> int:
        """Deliver the dead letters with this id again, None: all of them; returns how many.

        They come behind what waits, have all their attempts again, and no deadline. One that expired and that its
        sender has sent again since is dropped as a duplicate.

        Raises:
            Closed: the bus is closed.
        """
        if self._is_closed:
            raise Closed("the bus is closed: nothing can be delivered again")
        return self._redelivery.redrive(message_id)

    def forget(self, address: str, message_id: str) -> None:
        """Accept a message with this id again: whoever waited for it is gone."""
        self._ledger.forget(address, message_id)

    async def close(self) -> None:
        """Stop accepting; see `Bus.close`. One-way messages already in a queue can still be received.

        What nobody is left to receive becomes dead letters; with a journal it stays there for the next process instead.
        """
        if self._is_closed:
            return
        self._is_closed = True
        closed = Closed("the bus was closed")
        for mailbox in self._mailboxes.values():
            for slot in [slot for slot in mailbox.slots() if slot.is_request or not slot.is_admitted]:
                mailbox.withdraw(slot)
                self._ledger.abandon(slot, closed)
            for inbox in mailbox.inboxes:
                inbox.close()
        for slot in self._pending.values():
            self._ledger.give_up(slot, closed)
        self._redelivery.close()
        if self._journal is not None:
            await self._journal.flush()

    def _route(self, envelope: Envelope) -> Mailbox:
        if self._is_closed:
            raise Closed(f"message {envelope.id!r}: the bus is closed")
        mailbox = self._mailboxes.get(envelope.target)
        if mailbox is None:
            raise NoRoute(
                f"message {envelope.id!r}: nobody listens at {envelope.target!r}. "
                + did_you_mean(envelope.target, self._mailboxes)
            )
        if envelope.visibility is not None and mailbox.principal not in envelope.visibility:
            raise Denied(
                f"message {envelope.id!r}: {mailbox.principal!r}, who reads at {envelope.target!r}, "
                f"is not in its visibility: {listed(envelope.visibility)}"
            )
        return mailbox

    def _asked(self, request: Envelope) -> Slot | None:
        """The request as it still waits for its answer."""
        return None if request.reply_to is None else self._pending.get(request.reply_to)

    def _finish(self, slot: Slot, effect: bytes | None) -> None:
        self._counters.processed += 1
        if slot.record is not None and not slot.is_request:
            self._ledger.write(slot, State.PROCESSED, effect=effect)
        if slot.watch is not None:
            slot.became("done")
        self._release(slot)

    def _release(self, slot: Slot) -> None:
        mailbox = self._mailboxes.get(slot.envelope.target)
        if mailbox is not None:
            mailbox.release(slot)

    def _enter(self, inbox: Inbox) -> None:
        if self._is_closed or inbox.closed:
            raise Closed(f"cannot listen at {inbox.address!r}: the bus or this subscription is closed")
        mailbox = self._mailboxes.get(inbox.address)
        if mailbox is None:
            mailbox = self._mailboxes[inbox.address] = Mailbox(inbox.principal, admit=self._ledger.admit)
        if mailbox.principal != inbox.principal:
            raise Denied(
                f"{inbox.principal!r} cannot listen at {inbox.address!r}, where {mailbox.principal!r} reads: "
                "subscriptions of one address share its messages, hence their principal"
            )
        self._redelivery.adopt(inbox.address, mailbox)
        mailbox.join(inbox)

    def _leave(self, inbox: Inbox) -> None:
        mailbox = self._mailboxes[inbox.address]
        inbox.close()
        again = self._redelivery.leave(inbox, has_others=len(mailbox.inboxes) > 1)
        left = mailbox.leave(inbox, again)
        if not mailbox.inboxes:
            del self._mailboxes[inbox.address]
        self._redelivery.left_behind(left, inbox.address, is_closed=self._is_closed)
        for slot in tuple(self._pending.values()):
            if slot.receiver is inbox:
                self._ledger.give_up(
                    slot,
                    Closed(f"request {slot.envelope.id!r}: its listener at {inbox.address!r} left without an answer"),
                )
