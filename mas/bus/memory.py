"""A bus inside one process and one event loop.

Without deadlines it makes no task and no timer and depends on no clock: the same calls give the same order.
Leaves out on purpose: a wire, and threads (call it from its own event loop only).
"""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Self

import msgspec

from mas.bus.address_queue import AddressQueue
from mas.bus.counters import BusLimits, DetailedStatistics
from mas.bus.in_flight import DeliveryObserver, InFlightMessage, SubscriptionQueue
from mas.bus.journal import Journal
from mas.bus.journal_tables import State
from mas.bus.parts import PartCounters, PartLine, PartStream, Take
from mas.bus.redelivery import Redelivery
from mas.bus.settlement import Settlement
from mas.bus.undelivered import DeadLetter, bus_closed, no_answer, no_listener, not_a_reader
from mas.bus.wire import encode
from mas.core.errors import BusError, Closed, Denied, Dropped, JournalError, MasError, RemoteError
from mas.core.messages import Delivery, Envelope, Payload
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
        self._journal = journal
        self._settlement = Settlement(clock=clock, limits=limits, journal=journal)
        self._counters = self._settlement.counters
        self._queues: dict[str, AddressQueue] = {}
        self._pending: dict[str, InFlightMessage] = {}
        self.part_counters = PartCounters()
        self._tickets = itertools.count()
        self._redelivery = Redelivery(self._settlement, self._queues, ticket=self._tickets.__next__)
        self._is_closed = False
        if journal is not None:
            self._redelivery.restore(journal)

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
            self._settlement.taps.show(answer)

    async def fail(self, request: Envelope, error: Exception) -> None:
        if not isinstance(error, MasError):
            remote = RemoteError(f"{request.target!r} failed on {request.id!r}: {type(error).__name__}: {error}")
            remote.__cause__ = error
            error = remote
        self._settlement.answer(self._asked(request), error)

    def subscribe(self, address: str, *, principal: str | None = None, credit: int = 64) -> "LocalSubscription":
        """Listen at an address while the result is entered; see `Bus.subscribe`.

        Raises:
            ValueError: credit is below 1.
            On entry: Closed; Denied when the address already has subscriptions of another principal.
        """
        return LocalSubscription(self, address, principal=principal, credit=credit)

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        """Call `watch` for every message that enters a queue and every answer that is awaited; see `Bus.tap`."""
        return self._settlement.taps.add(watch, principal=principal)

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

    def _enter(self, subscription: "LocalSubscription") -> None:
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

    def _leave(self, subscription: "LocalSubscription") -> None:
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


class LocalSubscription(SubscriptionQueue):
    """A subscription: an async context manager that listens while it is entered.

    Args:
        bus: whose messages it takes.
        address: what it listens at.
        principal: who reads; None: the address.
        credit: messages held and not `done`, at most.

    Raises:
        ValueError: credit is below 1.
    """

    def __init__(self, bus: MemoryBus, address: str, *, principal: str | None, credit: int) -> None:
        if credit < 1:
            raise ValueError(f"credit of the subscription at {address!r} is {credit}; it must be 1 or more")
        super().__init__(address, principal=address if principal is None else principal, credit=credit)
        self._bus = bus

    async def __aenter__(self) -> Self:
        self._bus._enter(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._bus._leave(self)

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
            self._bus._finish(message, effect)

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
        return message is None or self._bus._redelivery.give_back(message, delay_s, cause, is_tried)

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        """Give a received message up; see `Subscription.reject`.

        Raises:
            BusError: this open subscription does not hold the message.
        """
        message = self._let_go(envelope)
        if message is not None:
            self._bus._redelivery.give_back(message, None, cause, is_tried=True)

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
        self._bus._redelivery.withdrawn(self)

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
            if self._bus._settlement.deliver(message):
                message.receiver = self
                self.taken.setdefault(message.envelope.id, []).append(message)
                return message.envelope
            self._bus._release(message)
        return None

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """A cancelled receiver hands its wake-up to the next one, so that no message lies unseen."""
        if turn in self._receivers:
            self._receivers.remove(turn)
        elif self.queue:
            self._wake()
