"""One message in flight through a bus (where it is, who waits for it, who observes it), and the subscription that
receives it and ends it.

A message has one outcome; the first one counts. `Pending` is what every delivery has in common, in one process and
between processes: a sender that waits. `InFlightMessage` and `mas.bus.mqtt.outgoing` add where it is.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, Self, TypeVar

import msgspec

from mas.bus.parts import PartLine
from mas.core.errors import BusError, Closed, JournalError
from mas.core.messages import Delivery, Envelope

Outcome = Envelope | Exception | None
"""An answer, an error to raise, or None: accepted, or done."""
K = TypeVar("K", bound=Hashable)


class Pending(msgspec.Struct, eq=False):
    """A message whose outcome is not final.

    Attributes:
        future: what the sender waits on; None: it does not wait. It holds errors as results, see `wait`.
        outcome: the outcome of a message that is not awaited.
        timer: fires at the deadline.
        tries: how often a receiver had it and did not finish.
    """

    envelope: Envelope
    future: "asyncio.Future[Outcome] | None" = None
    outcome: Outcome = None
    timer: asyncio.TimerHandle | None = None
    tries: int = 0

    @property
    def is_settled(self) -> bool:
        """The sender has the outcome, or was cancelled."""
        return self.future is not None and self.future.done()

    def settle(self, outcome: Outcome) -> None:
        """Give the sender its outcome; the first one counts."""
        if self.future is None:
            self.outcome = outcome
        elif not self.future.done():
            self.future.set_result(outcome)

    async def wait(self) -> Envelope | None:
        """The outcome.

        Raises:
            The error, if the outcome is one.
        """
        assert self.future is not None
        outcome = await self.future
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def at(self, deadline: float, clock: Callable[[], float], call: Callable[[], object]) -> None:
        """Call at the deadline, at once if it is past. The timer runs in real time, the clock decides."""
        remaining_s = deadline - clock()
        if remaining_s > 0:
            self.timer = asyncio.get_running_loop().call_later(remaining_s, self.at, deadline, clock, call)
        else:
            call()

    def stop_timer(self) -> None:
        """The deadline does not matter any more."""
        if self.timer is not None:
            self.timer.cancel()


class Recent(OrderedDict[K, None]):
    """The latest keys, at most `limit`; the oldest is forgotten first."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def add(self, key: K) -> K | None:
        """Remember a key, a new one as the latest; returns the key that is forgotten for it, None: none is."""
        self[key] = None
        return self.popitem(last=False)[0] if len(self) > self._limit else None


Queue = OrderedDict[int, "InFlightMessage"]
DeliveryEvent = Literal["delivered", "nacked", "done", "dead", "returned"]
"""A receiver has it; it was given back, or its receiver left it to another one here; it was handled; it was given up,
and is a dead letter here; no subscription is left here to take it, or it could not be kept: its sender may send it
elsewhere."""


class DeliveryObserver(Protocol):
    """Observes one message: for a bus between processes, whose sender waits in another one.

    Attributes:
        tries: how often a receiver had it and did not finish, before it came here.
    """

    tries: int

    def observe(self, event: DeliveryEvent, tries: int, due: float) -> None:
        """Its latest event; `tries` as above, and `due`: not to be delivered again before, on the bus's clock."""


class InFlightMessage(Pending, kw_only=True, eq=False):
    """One accepted message, until its outcome is final.

    Attributes:
        ticket: position in the order of acceptance, unique on one bus.
        lane: (source, key), or None where no order was asked.
        line: the way of the parts of its answer, None: they are not read.
        place: the queue that holds it, None once delivered or gone.
        subscription: the one it is bound to, None while any may take it and once it is done.
        receiver: the subscription that took it, None before.
        is_admitted: it went through the checks at the entrance of a queue.
        is_given_up: it was delivered, and its sender knows that no answer will come.
        due: when it may be delivered again, on the bus's clock.
        is_renewed: a receiver had it before, here or before the journal was opened.
        has_expired: it is a dead letter whose deadline passed.
        frame: the envelope as bytes, None without a journal; record: its number in the journal, None until it is in it.
        watchers: called once when its answer is not awaited any more.
        observer: hears its events, None: it is not observed.
    """

    ticket: int
    is_request: bool
    observer: DeliveryObserver | None = None
    lane: tuple[str, str] | None = None
    line: PartLine | None = None
    place: Queue | None = None
    subscription: "SubscriptionQueue | None" = None
    receiver: "SubscriptionQueue | None" = None
    is_admitted: bool = False
    is_given_up: bool = False
    has_expired: bool = False
    due: float = -math.inf
    is_renewed: bool = False
    frame: bytes | None = None
    record: int | None = None
    watchers: tuple[Callable[[], object], ...] = ()

    def __post_init__(self) -> None:
        if self.envelope.key is not None:
            self.lane = (self.envelope.source, self.envelope.key)
        if self.observer is not None:
            self.tries = self.observer.tries

    @property
    def is_promised(self) -> bool:
        """Its delivery was promised to its sender."""
        return not self.is_request and self.is_admitted and self.envelope.delivery is not Delivery.BEST_EFFORT

    @property
    def is_queued(self) -> bool:
        """A subscription has it in its queue, and can still receive it."""
        return self.subscription is not None and self.place is self.subscription.queue

    @property
    def is_unwanted(self) -> bool:
        """The sender was cancelled, though it may not have run since, or it already has the answer."""
        return self.future is not None and (self.future.done() if self.is_request else self.future.cancelled())

    def call_watchers(self) -> None:
        """The answer is not awaited any more: watchers are called soon, and never again."""
        for call in self.watchers:
            asyncio.get_running_loop().call_soon(call)
        self.watchers = ()

    def notify(self, event: DeliveryEvent) -> None:
        if self.observer is not None:
            self.observer.observe(event, self.tries, self.due)

    def put(self, place: Queue) -> None:
        """Stand at the end of a queue."""
        place[self.ticket] = self
        self.place = place

    def lift(self) -> None:
        """Leave the queue it stands in."""
        if self.place is not None:
            del self.place[self.ticket]
            self.place = None


class SubscriptionQueue:
    """The messages that one subscription holds.

    Credit: `held` counts the messages in the queue plus those taken and not yet `done`; it never exceeds `credit`.

    Attributes:
        queue: what can be received; pinned: what waits for room here, as only this subscription may take it.
        taken: what was received and is not `done`, by id.
    """

    def __init__(self, address: str, *, principal: str, credit: int) -> None:
        self.address, self.principal, self.credit = address, principal, credit
        self.held = 0
        self.closed = False
        self.queue: Queue = OrderedDict()
        self.pinned: Queue = OrderedDict()
        self.taken: dict[str, list[InFlightMessage]] = {}
        self._receivers: deque[asyncio.Future[None]] = deque()

    def push(self, message: InFlightMessage) -> None:
        """Put a message in the queue at the price of one credit, and wake a receiver."""
        self.held += 1
        message.subscription = self
        message.put(self.queue)
        self._wake()

    def close(self) -> None:
        """Take no new messages; receivers end when the queue is empty."""
        self.closed = True
        while self._receivers:
            self._wake()

    def _wake(self) -> None:
        while self._receivers:
            turn = self._receivers.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class LocalSubscription(SubscriptionQueue):
    """A subscription: an async context manager that listens while it is entered.

    Args:
        address: what it listens at.
        principal: who reads.
        credit: messages held and not `done`, at most.
        enter, leave: called when listening starts and ends.
        deliver: asked for every message about to be taken; False: it was cancelled or expired, and counted.
        release: gives the credit of one message back.
        finish: told of every message that is `done`, with its effect; gives its credit back.
        give_back: told of every message that is not, with the delay, the cause, and whether that was an attempt;
            a delay of None: never again.
        withdrawn: called when it takes nothing new.

    Raises:
        ValueError: credit is below 1.
    """

    def __init__(
        self,
        address: str,
        *,
        principal: str,
        credit: int,
        enter: Callable[["LocalSubscription"], None],
        leave: Callable[["LocalSubscription"], None],
        deliver: Callable[[InFlightMessage], bool],
        release: Callable[[InFlightMessage], None],
        finish: Callable[[InFlightMessage, bytes | None], None],
        give_back: Callable[[InFlightMessage, float | None, str, bool], bool],
        withdrawn: Callable[["LocalSubscription"], None],
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit of the subscription at {address!r} is {credit}; it must be 1 or more")
        super().__init__(address, principal=principal, credit=credit)
        self._enter, self._leave, self._deliver, self._release = enter, leave, deliver, release
        self._finish, self._give_back, self._withdrawn = finish, give_back, withdrawn

    async def __aenter__(self) -> Self:
        self._enter(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._leave(self)

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
            self._finish(message, effect)

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
        return message is None or self._give_back(message, delay_s, cause, is_tried)

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        """Give a received message up; see `Subscription.reject`.

        Raises:
            BusError: this open subscription does not hold the message.
        """
        message = self._let_go(envelope)
        if message is not None:
            self._give_back(message, None, cause, True)

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
        self._withdrawn(self)

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
            if self._deliver(message):
                message.receiver = self
                self.taken.setdefault(message.envelope.id, []).append(message)
                return message.envelope
            self._release(message)
        return None

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """A cancelled receiver hands its wake-up to the next one, so that no message lies unseen."""
        if turn in self._receivers:
            self._receivers.remove(turn)
        elif self.queue:
            self._wake()
