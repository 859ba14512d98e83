"""One subscription of one address, and the messages it holds.

Credit: `held` counts the messages in the queue plus those taken and not yet `done`; it never exceeds `credit`.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

from mas.core.errors import BusError, Closed
from mas.core.messages import Envelope

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
        watchers: called once when nobody waits for its answer any more.
    """

    __slots__ = (
        "envelope",
        "future",
        "inbox",
        "is_admitted",
        "is_given_up",
        "is_request",
        "lane",
        "outcome",
        "place",
        "receiver",
        "ticket",
        "timer",
        "watchers",
    )

    def __init__(self, envelope: Envelope, ticket: int, *, is_request: bool) -> None:
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
        self.watchers: tuple[Callable[[], object], ...] = ()

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

    def done(self, envelope: Envelope) -> None:
        """Give the credit of a received message back; see `Subscription.done`.

        Raises:
            BusError: this open subscription does not hold the message.
        """
        held = self.taken.get(envelope.id)
        if held is None:
            if self.closed:
                return
            raise BusError(
                f"message {envelope.id!r} is not held by the subscription at {self.address!r}: "
                "call done once for each received message, on the subscription that received it"
            )
        slot = held.pop(0)
        if not held:
            del self.taken[envelope.id]
        self._release(slot)

    def on_abandoned(self, envelope: Envelope, call: Callable[[], object]) -> None:
        """Call once when nobody waits for the answer any more; see `Subscription.on_abandoned`."""
        slot = next((slot for slot in self.taken.get(envelope.id, ()) if slot.envelope is envelope), None)
        if slot is None or slot.future is None or not slot.is_request:
            return
        slot.watchers += (call,)
        if slot.is_given_up or slot.future.cancelled():
            slot.tell_watchers()

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
