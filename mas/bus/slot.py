"""One message on its way through a bus: where it is, and who waits for it."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

from mas.bus.watch import Fate, Watch
from mas.core.messages import Delivery, Envelope

if TYPE_CHECKING:
    from mas.bus.inbox import Inbox

Outcome = Envelope | Exception | None
Queue = OrderedDict[int, "Slot"]


class Slot:
    """One accepted message on its way: where it is, and who waits for it.

    Attributes:
        ticket: position in the order of acceptance, unique on one bus.
        lane: (source, key), or None where no order was asked.
        future: what the sender waits on, None for a sender that does not wait.
        outcome: what the sender gets: an answer, an error to raise, or None for accepted.
        place: the queue that holds it, None once taken or gone.
        inbox: the subscription it is bound to, None while any may take it and once it is done.
        receiver: the subscription that took it, None before.
        is_admitted: it went through the checks at the entrance of a queue.
        is_given_up: it was taken, and its sender was told that no answer will come.
        timer: wakes a waiting sender at the deadline.
        tries: how often a receiver had it and gave it back or left.
        due: when it may be delivered again, on the bus's clock.
        is_renewed: a receiver had it before, here or before the journal was opened.
        frame: the envelope as bytes, None without a journal; record: its number in the journal, None until it is in it.
        watchers: called once when nobody waits for its answer any more.
        watch: told what becomes of it, None: nobody.
    """

    __slots__ = (
        "due",
        "envelope",
        "frame",
        "future",
        "inbox",
        "is_admitted",
        "is_given_up",
        "is_renewed",
        "is_request",
        "lane",
        "outcome",
        "place",
        "receiver",
        "record",
        "ticket",
        "timer",
        "tries",
        "watch",
        "watchers",
    )

    def __init__(self, envelope: Envelope, ticket: int, *, is_request: bool, watch: Watch | None = None) -> None:
        self.envelope = envelope
        self.ticket = ticket
        self.is_request = is_request
        self.lane = None if envelope.key is None else (envelope.source, envelope.key)
        self.future: asyncio.Future[Outcome] | None = None
        self.outcome: Outcome = None
        self.place: Queue | None = None
        self.inbox: Inbox | None = None
        self.receiver: Inbox | None = None
        self.is_admitted = False
        self.is_given_up = False
        self.timer: asyncio.TimerHandle | None = None
        self.tries = 0 if watch is None else watch.tries
        self.due = -math.inf
        self.is_renewed = False
        self.watch = watch
        self.frame: bytes | None = None
        self.record: int | None = None
        self.watchers: tuple[Callable[[], object], ...] = ()

    @property
    def is_promised(self) -> bool:
        """Its sender was told that it will be delivered."""
        return not self.is_request and self.is_admitted and self.envelope.delivery is not Delivery.BEST_EFFORT

    @property
    def is_queued(self) -> bool:
        """A subscription has it in its queue, and can still receive it."""
        return self.inbox is not None and self.place is self.inbox.queue

    @property
    def is_settled(self) -> bool:
        """The sender has its outcome, or was cancelled."""
        return self.future is not None and self.future.done()

    @property
    def is_unwanted(self) -> bool:
        """The sender was cancelled, though it may not have run since, or it already has the answer."""
        return self.future is not None and (self.future.done() if self.is_request else self.future.cancelled())

    def settle(self, outcome: Outcome) -> None:
        """Give the sender its outcome; the first one counts."""
        if self.future is None:
            self.outcome = outcome
        elif not self.future.done():
            self.future.set_result(outcome)

    def tell_watchers(self) -> None:
        """Nobody waits for the answer any more: what watches for that is called soon, and never again."""
        for call in self.watchers:
            asyncio.get_running_loop().call_soon(call)
        self.watchers = ()

    def became(self, fate: Fate) -> None:
        """Tell whoever follows it."""
        if self.watch is not None:
            self.watch.became(fate, self.tries, self.due)

    def put(self, place: Queue) -> None:
        """Stand at the end of a queue."""
        place[self.ticket] = self
        self.place = place

    def lift(self) -> None:
        """Leave the queue it stands in."""
        if self.place is not None:
            del self.place[self.ticket]
            self.place = None
