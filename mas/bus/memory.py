"""A bus inside one process and one event loop.

Without deadlines it makes no task and no timer and depends on no clock: the same calls give the same order.
Leaves out on purpose: a wire, and threads (call it from its own event loop only).
"""

import asyncio
import itertools
import time
from collections.abc import Callable

import msgspec

from mas.bus.address_queue import AddressQueue
from mas.bus.counters import BusLimits, DetailedStatistics
from mas.bus.in_flight import DeliveryObserver, InFlightMessage, LocalSubscription
from mas.bus.journal import Journal
from mas.bus.journal_tables import State
from mas.bus.parts import PartCounters, PartLine, PartStream, Take
from mas.bus.redelivery import Redelivery
from mas.bus.settlement import Settlement
from mas.bus.undelivered import DeadLetter, bus_closed, no_answer, no_listener, not_a_reader
from mas.bus.wire import encode
from mas.core.errors import Closed, Denied, Dropped, MasError, RemoteError
from mas.core.messages import Delivery, Envelope, Note, Payload
from mas.core.naming import listed


class MemoryBus:
    """The `Bus` contract in memory.

    A request reaches its handler with `reply_to` set by the bus, and with the earlier of its deadline and `timeout_s`
    as deadline. When a subscription ends, what it had not handed out goes to the address's other subscriptions, and so
    does what it had handed out and was not `done`, with the next `attempt`; best-effort messages do not, and requests
    only `at_least_once`. One-way messages wait for the next subscription if there is no other; a request whose listener
    left without an answer raises Closed, and one that no subscription is left to take raises NoRoute; see
    docs/delivery.md.

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
        limits: BusLimits = BusLimits(),  # noqa: B008 - frozen
        journal: Journal | None = None,
    ) -> None:
        self._clock = clock
        self._taps = Taps()
        self._journal = journal
        self._settlement = Settlement(clock=clock, show=self._taps.show, limits=limits, journal=journal)
        self._counters = self._settlement.counters
        self._queues: dict[str, AddressQueue] = {}
        self._pending: dict[str, InFlightMessage] = {}
        self.part_counters = PartCounters()
        self._tickets = itertools.count()
        self._redelivery = Redelivery(
            self._settlement, self._queues, clock=clock, ticket=self._tickets.__next__, limits=limits, journal=journal
        )
        self._is_closed = False
        if journal is not None:
            self._redelivery.restore()

    def now(self) -> float:
        """Seconds on the clock that deadlines refer to."""
        return self._clock()

    async def publish(self, envelope: Envelope, *, wait: bool = True, observer: DeliveryObserver | None = None) -> None:
        """Deliver one way; see `Bus.publish`. A duplicate is counted and dropped without an error.

        A best-effort message never waits; where there is no room it is counted and dropped, without an error unless
        `wait` is False. With a journal in group mode, returns once it is on the disk. `observer` hears its events.

        Raises:
            Malformed: the journal cannot hold the payload. JournalError: it is closed, or its disk has failed.
        """
        queue = self._route(envelope)
        message = InFlightMessage(envelope, ticket=next(self._tickets), is_request=False, observer=observer)
        if self._journal is not None:
            self._journal.check()
            message.frame = encode(envelope)
        self._counters.accepted += 1
        if self._settlement.offer(queue, message):
            if isinstance(message.outcome, Exception):
                raise message.outcome
        elif not wait or envelope.delivery is Delivery.BEST_EFFORT:
            self._counters.refused += 1
            if not wait:
                raise Dropped(
                    f"message {envelope.id!r}: the queue of {envelope.target!r} is full; wait, or raise its credit"
                )
        else:
            message.future = asyncio.get_running_loop().create_future()
            queue.park(message)
            await self._settlement.outcome(queue, message)
        if message.record is not None and self._journal is not None:
            await self._journal.is_safe()

    async def request(
        self,
        envelope: Envelope,
        *,
        timeout_s: float | None = None,
        observer: DeliveryObserver | None = None,
        take: Take | None = None,
    ) -> Envelope:
        """Deliver and wait for the answer; see `Bus.request` and `publish`. A duplicate raises Dropped.

        `take` is given the parts of the answer, None: they are not read.
        """
        queue = self._route(envelope)
        ticket = next(self._tickets)
        token = f"answer-{ticket}"
        deadline = envelope.deadline
        if timeout_s is not None:
            timeout = self.now() + timeout_s
            deadline = timeout if deadline is None else min(deadline, timeout)
        envelope = msgspec.structs.replace(envelope, reply_to=token, deadline=deadline)
        message = InFlightMessage(envelope, ticket=ticket, is_request=True, observer=observer)
        if self._journal is not None:
            self._journal.check()
            message.frame = encode(message.envelope)
        message.future = asyncio.get_running_loop().create_future()
        self._counters.accepted += 1
        self._pending[token] = message
        if take is not None:
            message.line = PartLine(take, self.part_counters)
        if not self._settlement.offer(queue, message):
            queue.park(message)
        try:
            answer = await self._settlement.outcome(queue, message)
        finally:
            del self._pending[token]
        assert answer is not None
        return answer

    def stream(self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256) -> PartStream:
        """Deliver a request and read its answer in parts; see `Bus.stream`."""

        async def ask(stream: PartStream) -> Envelope:
            return await self.request(envelope, timeout_s=timeout_s, take=stream.take)

        return PartStream(envelope, ask, queue=queue, counters=self.part_counters)

    def part(self, request: Envelope, payload: Payload) -> bool:
        message, counters = self._asked(request), self.part_counters
        counters.accepted += 1
        line = None if message is None or message.is_settled else message.line
        if message is None or line is None or not line.move_to(request):
            counters.dropped += 1
            return False
        line.send(request, payload, None if message.receiver is None else message.receiver.principal)
        return True

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
        message = self._asked(request)
        if message is not None and message.line is not None:
            answer = message.line.closing(request, answer)
        frame = None if self._journal is None else encode(answer)
        if self._settlement.answer(message, answer, frame):
            self._taps.show(answer)

    async def fail(self, request: Envelope, error: Exception) -> None:
        if not isinstance(error, MasError):
            remote = RemoteError(f"{request.target!r} failed on {request.id!r}: {type(error).__name__}: {error}")
            remote.__cause__ = error
            error = remote
        self._settlement.answer(self._asked(request), error)

    def subscribe(self, address: str, *, principal: str | None = None, credit: int = 64) -> LocalSubscription:
        """Listen at an address while the result is entered; see `Bus.subscribe`.

        Raises:
            ValueError: credit is below 1.
            On entry: Closed; Denied when the address already has subscriptions of another principal.
        """
        return LocalSubscription(
            address,
            principal=address if principal is None else principal,
            credit=credit,
            enter=self._enter,
            leave=self._leave,
            deliver=self._settlement.deliver,
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
        for queue in tuple(self._queues.values()):
            self._settlement.purge(queue)
        return self._counters.freeze(
            waiting=self._redelivery.waiting() + sum(len([*box.messages()]) for box in self._queues.values()),
            subscriptions=sum(len(queue.subscriptions) for queue in self._queues.values()),
            forgotten=self._settlement.dead.forgotten,
            parts=self.part_counters.freeze(),
        )

    def dead_letters(self) -> tuple[DeadLetter, ...]:
        """Messages whose delivery was promised and given up on, oldest first, payloads and all."""
        return self._settlement.dead.all()

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
        """Accept a message with this id again: its sender does not wait any more."""
        self._settlement.forget(address, message_id)

    async def close(self) -> None:
        """Stop accepting; see `Bus.close`. One-way messages already in a queue can still be received.

        What no subscription is left to receive becomes dead letters; with a journal it stays there for the next process
        instead.
        """
        if self._is_closed:
            return
        self._is_closed = True
        closed = Closed("the bus was closed")
        for queue in self._queues.values():
            for message in [message for message in queue.messages() if message.is_request or not message.is_admitted]:
                queue.withdraw(message)
                self._settlement.fail(message, closed)
            for subscription in queue.subscriptions:
                subscription.close()
        for message in self._pending.values():
            self._settlement.give_up(message, closed)
        self._redelivery.close()
        if self._journal is not None:
            await self._journal.flush()

    def _route(self, envelope: Envelope) -> AddressQueue:
        if self._is_closed:
            raise bus_closed(envelope)
        queue = self._queues.get(envelope.target)
        if queue is None:
            raise no_listener(envelope, self._queues)
        if envelope.visibility is not None and queue.principal not in envelope.visibility:
            raise not_a_reader(envelope, (queue.principal,))
        return queue

    def _asked(self, request: Envelope) -> InFlightMessage | None:
        """The request as it still waits for its answer."""
        return None if request.reply_to is None else self._pending.get(request.reply_to)

    def _finish(self, message: InFlightMessage, effect: bytes | None) -> None:
        self._counters.processed += 1
        if message.record is not None and not message.is_request:
            self._settlement.write(message, State.PROCESSED, effect=effect)
        if message.observer is not None:
            message.notify("done")
        self._release(message)

    def _release(self, message: InFlightMessage) -> None:
        queue = self._queues.get(message.envelope.target)
        if queue is not None:
            queue.release(message)

    def _enter(self, subscription: LocalSubscription) -> None:
        if self._is_closed or subscription.closed:
            raise Closed(f"cannot listen at {subscription.address!r}: the bus or this subscription is closed")
        queue = self._queues.get(subscription.address)
        if queue is None:
            queue = self._queues[subscription.address] = AddressQueue(
                subscription.principal, admit=self._settlement.admit
            )
        if queue.principal != subscription.principal:
            raise Denied(
                f"{subscription.principal!r} cannot listen at {subscription.address!r}, where {queue.principal!r} "
                "reads: subscriptions of one address share its messages, hence their principal"
            )
        self._redelivery.adopt(subscription.address, queue)
        queue.join(subscription)

    def _leave(self, subscription: LocalSubscription) -> None:
        queue = self._queues[subscription.address]
        subscription.close()
        again = self._redelivery.leave(subscription, has_others=len(queue.subscriptions) > 1)
        left = queue.leave(subscription, again)
        if not queue.subscriptions:
            del self._queues[subscription.address]
        self._redelivery.left_behind(left, subscription.address, is_closed=self._is_closed)
        for message in tuple(self._pending.values()):
            if message.receiver is subscription:
                self._settlement.give_up(message, no_answer(message.envelope))


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
