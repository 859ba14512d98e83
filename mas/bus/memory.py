"""A bus inside one process and one event loop.

Without deadlines it makes no task and no timer and depends on no clock: the same calls give the same order.
Leaves out on purpose: a wire, persistence, and threads (call it from its own event loop only).
"""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec

from mas.bus.counters import DetailedStatistics
from mas.bus.inbox import Inbox, Slot
from mas.bus.ledger import Ledger
from mas.bus.mailbox import Mailbox
from mas.bus.taps import Taps
from mas.core.errors import Closed, Denied, Dropped, MasError, NoRoute, RemoteError
from mas.core.messages import Envelope
from mas.core.naming import did_you_mean


class MemoryBus:
    """The `Bus` contract in memory.

    A request reaches its handler with `reply_to` set by the bus, and with the earlier of its deadline and `timeout_s`
    as deadline. When a subscription ends, messages that it had not handed out go to the address's other subscriptions;
    those it had handed out and were not `done` do so only `at_least_once`, with the next `attempt`. A request whose
    listener left without an answer raises Closed; one that nobody is left to take raises NoRoute.

    Args:
        clock: seconds that deadlines refer to; timers wait in real time and look at it again.
        remembered: how many ids of effectively-once messages are remembered; the oldest is forgotten first.

    Raises:
        ValueError: `remembered` is below 1.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, remembered: int = 16_384) -> None:
        self._clock = clock
        self._taps = Taps()
        self._ledger = Ledger(clock=clock, show=self._taps.show, remembered=remembered)
        self._counters = self._ledger.counters
        self._mailboxes: dict[str, Mailbox] = {}
        self._pending: dict[str, Slot] = {}
        self._tickets = itertools.count()
        self._is_closed = False

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to."""
        return self._clock()

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        """Deliver one way; see `Bus.publish`. A duplicate is counted and dropped without an error."""
        mailbox = self._route(envelope)
        slot = Slot(envelope, next(self._tickets), is_request=False)
        self._counters.accepted += 1
        if self._ledger.offer(mailbox, slot):
            if isinstance(slot.outcome, Exception):
                raise slot.outcome
            return
        if not wait:
            self._counters.refused += 1
            raise Dropped(
                f"message {envelope.id!r}: the queue of {envelope.target!r} is full; wait, or raise its credit"
            )
        slot.future = asyncio.get_running_loop().create_future()
        mailbox.park(slot)
        await self._ledger.outcome(mailbox, slot)

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        """Deliver and wait for the answer; see `Bus.request`. A duplicate raises Dropped."""
        mailbox = self._route(envelope)
        ticket = next(self._tickets)
        token = f"answer-{ticket}"
        deadline = envelope.deadline
        if timeout_s is not None:
            timeout = self.now() + timeout_s
            deadline = timeout if deadline is None else min(deadline, timeout)
        slot = Slot(msgspec.structs.replace(envelope, reply_to=token, deadline=deadline), ticket, is_request=True)
        slot.future = asyncio.get_running_loop().create_future()
        self._counters.accepted += 1
        self._pending[token] = slot
        if not self._ledger.offer(mailbox, slot):
            mailbox.park(slot)
        try:
            answer = await self._ledger.outcome(mailbox, slot)
        finally:
            del self._pending[token]
        assert answer is not None
        return answer

    async def reply(self, request: Envelope, answer: Envelope) -> None:
        """Answer a request; see `Bus.reply`. The answer's `correlation` is set to the request's id.

        Raises:
            Denied: the requester is not among the readers of the answer; the request still waits.
        """
        reader = request.source if request.principal is None else request.principal
        if answer.visibility is not None and reader not in answer.visibility:
            raise Denied(f"answer {answer.id!r}: the requester {reader!r} is not in its visibility {_names(answer)}")
        if answer.correlation != request.id:
            answer = msgspec.structs.replace(answer, correlation=request.id)
        if self._ledger.answer(self._asked(request), answer):
            self._taps.show(answer)

    async def fail(self, request: Envelope, error: Exception) -> None:
        """Answer a request with an error; see `Bus.fail`."""
        if not isinstance(error, MasError):
            remote = RemoteError(f"{request.target!r} failed on {request.id!r}: {type(error).__name__}: {error}")
            remote.__cause__ = error
            error = remote
        self._ledger.answer(self._asked(request), error)

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
        )

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        """Call `watch` for every message that enters a queue and every answer that is awaited; see `Bus.tap`."""
        return self._taps.add(watch, principal=principal)

    def statistics(self) -> DetailedStatistics:
        """Counters so far; what has expired in a queue is taken out and counted first."""
        for mailbox in tuple(self._mailboxes.values()):
            self._ledger.purge(mailbox)
        return self._counters.freeze(
            waiting=sum(1 for mailbox in self._mailboxes.values() for _ in mailbox.slots()),
            subscriptions=sum(len(mailbox.inboxes) for mailbox in self._mailboxes.values()),
        )

    async def close(self) -> None:
        """Stop accepting; see `Bus.close`. One-way messages already in a queue can still be received."""
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
                f"is not in its visibility {_names(envelope)}"
            )
        return mailbox

    def _asked(self, request: Envelope) -> Slot | None:
        """The request as it still waits for its answer."""
        return None if request.reply_to is None else self._pending.get(request.reply_to)

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
        mailbox.join(inbox)

    def _leave(self, inbox: Inbox) -> None:
        mailbox = self._mailboxes[inbox.address]
        inbox.close()
        again = self._ledger.again(inbox) if len(mailbox.inboxes) > 1 else []
        for slot in mailbox.leave(inbox, again):
            self._ledger.abandon(
                slot, NoRoute(f"message {slot.envelope.id!r}: the last listener at {inbox.address!r} left")
            )
        if not mailbox.inboxes:
            del self._mailboxes[inbox.address]
        inbox.taken.clear()
        for slot in tuple(self._pending.values()):
            if slot.receiver is inbox:
                self._ledger.give_up(
                    slot,
                    Closed(f"request {slot.envelope.id!r}: its listener at {inbox.address!r} left without an answer"),
                )


def _names(envelope: Envelope) -> list[str]:
    return sorted(envelope.visibility or ())
