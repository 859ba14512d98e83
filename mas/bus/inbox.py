"""One subscription of one address, and the messages it holds.

Credit: `held` counts the messages in the queue plus those taken and not yet `done`; it never exceeds `credit`.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mas.bus.watch import Fate, Watch
from mas.core.errors import BusError, Closed, JournalError
from mas.core.messages import Delivery, Envelope

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


class Inbox:
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
        enter: Callable[["Inbox"], None],
        leave: Callable[["Inbox"], None],
        deliver: Callable[[Slot], bool],
        release: Callable[[Slot], None],
        finish: Callable[[Slot, bytes | None], None],
        give_back: Callable[[Slot, float | None, str, bool], bool],
        withdrawn: Callable[["Inbox"], None],
    ) -> None:
        if credit < 1:
            raise ValueError(f"credit of the subscription at {address!r} is {credit}; it must be 1 or more")
        self.address = address
        self.principal = principal
        self.credit = credit
        self.held = 0
        self.closed = False
        self.queue: Queue = OrderedDict()
        self.pinned: Queue = OrderedDict()
        self.taken: dict[str, list[Slot]] = {}
        self._receivers: deque[asyncio.Future[None]] = deque()
        self._enter = enter
        self._leave = leave
        self._deliver = deliver
        self._release = release
        self._finish = finish
        self._give_back = give_back
        self._withdrawn = withdrawn

    async def __aenter__(self) -> Self:
        self._enter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """The next message; see `Subscription.receive`."""
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
        slot = self._let_go(envelope)
        if slot is not None:
            self._finish(slot, effect)

    def nack(
        self, envelope: Envelope, *, delay_s: float = 0.0, cause: str = "given back", is_tried: bool = True
    ) -> bool:
        """Give a received message back, to be delivered again; see `Subscription.nack`.

        Raises:
            ValueError: the delay is negative. BusError: this open subscription does not hold the message.
        """
        if not delay_s >= 0:
            raise ValueError(f"delay_s is {delay_s}; it must be 0 (at once) or more")
        slot = self._let_go(envelope)
        return slot is None or self._give_back(slot, delay_s, cause, is_tried)

    def reject(self, envelope: Envelope, *, cause: str) -> None:
        """Give a received message up; see `Subscription.reject`.

        Raises:
            BusError: this open subscription does not hold the message.
        """
        slot = self._let_go(envelope)
        if slot is not None:
            self._give_back(slot, None, cause, True)

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when nobody waits for the answer any more; see `Subscription.on_abandoned`."""
        slot = next((slot for slot in self.taken.get(envelope.id, ()) if slot.envelope is envelope), None)
        if slot is None or slot.future is None or not slot.is_request:
            return
        slot.watchers += (call,)
        if slot.is_given_up or slot.future.cancelled():
            slot.tell_watchers()

    async def withdraw(self) -> None:
        """Take nothing new; see `Subscription.withdraw`."""
        self.credit = 0
        self.close()
        self._withdrawn(self)

    async def heard(self) -> None:
        """In one process an answer is heard at once; see `Subscription.heard`."""

    def push(self, slot: Slot) -> None:
        """Put a message in the queue at the price of one credit, and wake a receiver."""
        self.held += 1
        slot.inbox = self
        slot.put(self.queue)
        self._wake()

    def close(self) -> None:
        """Take no new messages; receivers end when the queue is empty."""
        self.closed = True
        while self._receivers:
            self._wake()

    def _check_effect(self, envelope: Envelope) -> None:
        if any(slot.record is None or slot.is_request for slot in self.taken.get(envelope.id, ())):
            raise JournalError(
                f"the effect of {envelope.id!r} cannot be kept: it takes a journal and a one-way message"
            )

    def _let_go(self, envelope: Envelope) -> Slot | None:
        """The received message, no longer held; None: the subscription has ended, and others have it."""
        held = self.taken.get(envelope.id)
        if held is None:
            if self.closed:
                return None
            raise BusError(
                f"message {envelope.id!r} is not held by the subscription at {self.address!r}: call done, nack or "
                "reject once for each received message, on the subscription that received it"
            )
        slot = held.pop(0)
        if not held:
            del self.taken[envelope.id]
        return slot

    def _take(self) -> Envelope | None:
        while self.queue:
            _, slot = self.queue.popitem(last=False)
            slot.place = None
            if self._deliver(slot):
                slot.receiver = self
                self.taken.setdefault(slot.envelope.id, []).append(slot)
                return slot.envelope
            self._release(slot)
        return None

    def _wake(self) -> None:
        while self._receivers:
            turn = self._receivers.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    def _pass_on(self, turn: asyncio.Future[None]) -> None:
        """A cancelled receiver hands its wake-up to the next one, so that no message lies unseen."""
        if turn in self._receivers:
            self._receivers.remove(turn)
        elif self.queue:
            self._wake()
