"""One message in flight through a bus: where it is, who waits for it, who observes it; and those that one subscription
holds.

A message has one outcome; the first one counts. `Pending` is what every delivery has in common, in one process and
between processes: a sender that waits. `InFlightMessage` and `mas.bus.mqtt.outgoing` add where it is.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Literal, Protocol, TypeVar

import msgspec

from mas.bus.parts import PartLine
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

    __repr__ = object.__repr__  # an event loop shows what a callback was given, and payloads may be private

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
