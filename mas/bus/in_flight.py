"""One message in flight through a bus in one process (where it is, who waits for it, who observes it), and the queue of
one subscription, which holds it."""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Literal, Protocol

from mas.bus.pending import Pending
from mas.core.messages import Delivery, Envelope

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


class InFlightMessage(Pending):
    """One accepted message, until its outcome is final.

    Attributes:
        ticket: position in the order of acceptance, unique on one bus.
        lane: (source, key), or None where no order was asked.
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

    __slots__ = (
        "due",
        "frame",
        "has_expired",
        "is_admitted",
        "is_given_up",
        "is_renewed",
        "is_request",
        "lane",
        "observer",
        "place",
        "receiver",
        "record",
        "subscription",
        "ticket",
        "watchers",
    )

    def __init__(
        self, envelope: Envelope, ticket: int, *, is_request: bool, observer: DeliveryObserver | None = None
    ) -> None:
        self.envelope = envelope  # as Pending does, without its call: once for every message
        self.future = None
        self.outcome = None
        self.timer = None
        self.tries = 0 if observer is None else observer.tries
        self.ticket = ticket
        self.is_request = is_request
        self.lane = None if envelope.key is None else (envelope.source, envelope.key)
        self.place: Queue | None = None
        self.subscription: SubscriptionQueue | None = None
        self.receiver: SubscriptionQueue | None = None
        self.is_admitted = False
        self.is_given_up = False
        self.has_expired = False
        self.due = -math.inf
        self.is_renewed = False
        self.observer = observer
        self.frame: bytes | None = None
        self.record: int | None = None
        self.watchers: tuple[Callable[[], object], ...] = ()

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
        """Tell its observer."""
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
        self.address = address
        self.principal = principal
        self.credit = credit
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
