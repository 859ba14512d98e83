"""Messages of this process in flight to other processes, and the order of those that have a key."""

import math
from collections import deque
from collections.abc import Callable

import msgspec

from mas.bus.in_flight import Pending
from mas.bus.mqtt.client import NOT_AUTHORISED, TOO_LONG
from mas.bus.mqtt.frames import Mode
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartStream
from mas.bus.undelivered import given_up, no_answer, no_listener_left
from mas.core.errors import Closed, Denied, Malformed, NoRoute, RemoteError
from mas.core.messages import Delivery

OrderKey = tuple[str, str, str]
"""Source, key and target of messages that are handled in order."""


class OutgoingMessage(Pending, kw_only=True, eq=False):
    """A message that this process sent, until its outcome is final.

    Attributes:
        ticket: names this sending; hard to guess, so that only who was sent it can answer it.
        deadline: on this process's clock; None: none.
        order_key: None where no order was asked.
        attempt: how often it was published; 0 before its turn.
        holder: the process that said that it has this attempt.
        queried: processes that may have this attempt and have not answered a query yet; None: none was queried.
        excluded: processes that had it and returned it.
        counted: the latest attempt that is among `tries` although nothing was heard of it.
        is_delivered: a receiver at its holder has it now.
        is_orphan: it waits for a listener; the process that was to handle it has left or died.
        is_sent: this attempt went to the broker, which has not said that there is no subscriber.
        is_written: the journal has it, or need not; only then it is published.
        is_resumed: an earlier life of this process sent it, and some process may have it.
        record: its position in the journal; None: it is in none.
        unrouted_since: when the broker first said that there is no subscriber; None: it did not, or took it since.
        not_before: when it may be published again, on this process's clock.
        has_room: it counts towards the bound of messages in flight.
        due: when to check on it next; `pause_s`: the wait after that.
        stream: reads the parts of its answer; None: they are not read.
    """

    ticket: str
    mode: Mode
    deadline: float | None
    stream: PartStream | None = None
    order_key: OrderKey | None = None
    attempt: int = 0
    holder: Peer | None = None
    queried: set[Peer] | None = None
    excluded: set[Peer] = msgspec.field(default_factory=set)
    counted: int = 0
    is_delivered: bool = False
    is_sent: bool = False
    is_written: bool = True
    is_resumed: bool = False
    record: int | None = None
    is_orphan: bool = False
    unrouted_since: float | None = None
    not_before: float = -math.inf
    has_room: bool = True
    due: float = 0.0
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        envelope = self.envelope
        if envelope.key is not None:
            self.order_key = (envelope.source, envelope.key, envelope.target)

    @property
    def is_request(self) -> bool:
        """Its sender waits for an answer."""
        return self.mode == "request"

    @property
    def may_repeat(self) -> bool:
        """Whether another process may get it when the one that has it vanishes."""
        return self.envelope.delivery is not Delivery.BEST_EFFORT

    def check_after(self, now: float, pause_s: float) -> None:
        """Check on it when the pause is over."""
        self.pause_s = pause_s
        self.due = now + pause_s

    def may_be_at(self, peer: Peer) -> bool:
        """Whether a process may have this attempt without having said so."""
        return self.is_sent and self.holder is None and (self.queried is None or peer in self.queried)

    def count_lost_attempt(self) -> None:
        """A process died that may have had this attempt; of all that may have had one, one did: count it once."""
        self.tries += self.counted < self.attempt
        self.counted = self.attempt

    def next_attempt(self) -> None:
        """No process has it: the next attempt may be published when it is its turn."""
        self.attempt += 1
        self.holder, self.queried = None, None
        self.is_sent, self.is_delivered = False, False

    def wait_for_listener(self, not_before: float) -> None:
        """No process is there to take it; those that returned it may take the next attempt."""
        self.next_attempt()
        self.unrouted_since = None
        self.excluded.clear()
        self.is_orphan = True
        self.due = self.not_before = max(self.not_before, not_before)

    def revive(self, now: float) -> None:
        """A dead letter is sent again: with all its attempts, without a deadline, and beyond the bound of messages."""
        self.tries, self.deadline, self.has_room = 0, None, False
        self.wait_for_listener(now)

    def refusal(self, code: int, principal: str) -> Denied | Malformed | None:
        """The error for the broker's reason code to a sender, None: the message may be published again."""
        if code == NOT_AUTHORISED:
            return Denied(
                f"message {self.envelope.id!r}: the broker does not let {principal!r} send to {self.envelope.target!r}"
            )
        if code == TOO_LONG:
            return Malformed(f"message {self.envelope.id!r} is longer than the broker allows")
        return None

    def undeliverable(self) -> Closed | NoRoute:
        """No process is there to take it, or the one that had taken it is gone."""
        is_asked = self.holder is not None and self.is_request
        return no_answer(self.envelope) if is_asked else no_listener_left(self.envelope)

    def tried_enough(self) -> RemoteError:
        """It was tried as often as it may be."""
        cause = f"it was tried {self.tries} times at {self.envelope.target!r}, and each time given back or left"
        return given_up(self.envelope, cause)

    def answer_is_gone(self) -> Closed:
        """The process that answered does not have the answer any more."""
        return Closed(
            f"request {self.envelope.id!r}: {self.envelope.target!r} has answered it, and keeps the answer no more"
        )


class OrderedKeys:
    """Keeps messages of one source, key and target in order.

    The next one may be published when all before it are done, or are at the one process that listens: that keeps their
    order. One that must be published again waits for that at its old place.

    Args:
        listeners: the processes that listen at an address.
        start: publishes a message whose turn it is.
    """

    def __init__(self, listeners: Callable[[str], list[Peer]], start: Callable[[OutgoingMessage], None]) -> None:
        self._listeners, self._start = listeners, start
        self._queues: dict[OrderKey, deque[OutgoingMessage]] = {}

    def add(self, message: OutgoingMessage) -> None:
        """Publish a message when it is its turn, which may be now."""
        if message.order_key is None:
            self._start(message)
        else:
            self._queues.setdefault(message.order_key, deque()).append(message)
            self.advance(message)

    def remove(self, message: OutgoingMessage) -> None:
        """The message has its outcome."""
        queue = None if message.order_key is None else self._queues.get(message.order_key)
        if message.order_key is None or queue is None:
            return
        queue.remove(message)
        if queue:
            self.advance(queue[0])
        else:
            del self._queues[message.order_key]

    def advance(self, message: OutgoingMessage) -> None:
        """The state of a message changed: publish those of its key whose turn it is now."""
        if message.order_key is None:
            if not message.is_sent:
                self._start(message)
            return
        holders: set[Peer | None] = set()
        for following in tuple(self._queues.get(message.order_key, ())):
            if not following.is_sent:
                if not holders or self._may_follow(following, holders):
                    self._start(following)
                return
            holders.add(following.holder)

    def _may_follow(self, message: OutgoingMessage, holders: set[Peer | None]) -> bool:
        """Whether a message can only reach the process that has all before it."""
        is_one = len(holders) == 1 and holders == set(self._listeners(message.envelope.target))
        return is_one and holders.isdisjoint(message.excluded)
