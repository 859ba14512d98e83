"""One message of this process on its way, and the order of those that have a key."""

import asyncio
import math
from collections import deque
from collections.abc import Callable

from mas.bus.mqtt.frames import Mode
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartStream
from mas.core.messages import Delivery, Envelope

Lane = tuple[str, str, str]


class Post:
    """A message in the outbox, until it is done.

    Attributes:
        ticket: names this sending; hard to guess, so that only who was sent it can answer it.
        deadline: on this process's clock; None: none.
        lane: (source, key, target), None where no order was asked.
        future: what the sender waits on.
        attempt: how often it was given to the address; 0 before it was its turn.
        holder: the process that said that it has it.
        asked: processes that may have it and have not said so yet; None: nobody was asked.
        shunned: processes that had it and left it.
        tries: how often a receiver had it and did not finish; counted: the latest attempt that is among them though
            nothing was heard of it.
        is_taken: a receiver at its holder has it now.
        is_orphan: it waits for somebody to listen; whoever was to do it has left or died.
        is_sent: it went to the broker, which has not said that nobody listens.
        is_written: it may go; False: the journal must have it first.
        is_resumed: an earlier life of this process sent it, and some process may have it.
        record: its position in the journal; None: it is in none.
        unrouted_since: when the broker first said that nobody listens; None: it did not, or took it since.
        not_before: when it may be given to the address again, on this process's clock.
        has_room: it takes room in the outbox.
        due: when to look after it next; `pause_s`: the wait after that.
        timer: fires at the deadline.
        stream: reads the parts of its answer; None: nobody does.
    """

    __slots__ = (
        "asked",
        "attempt",
        "counted",
        "deadline",
        "due",
        "envelope",
        "future",
        "has_room",
        "holder",
        "is_orphan",
        "is_resumed",
        "is_sent",
        "is_taken",
        "is_written",
        "lane",
        "mode",
        "not_before",
        "pause_s",
        "record",
        "shunned",
        "stream",
        "ticket",
        "timer",
        "tries",
        "unrouted_since",
    )

    def __init__(
        self,
        ticket: str,
        envelope: Envelope,
        mode: Mode,
        deadline: float | None,
        future: "asyncio.Future[Envelope | None]",
        stream: PartStream | None = None,
    ) -> None:
        self.ticket = ticket
        self.envelope = envelope
        self.mode = mode
        self.deadline = deadline
        self.lane: Lane | None = None
        if envelope.key is not None:
            self.lane = (envelope.source, envelope.key, envelope.target)
        self.future = future
        self.attempt = 0
        self.holder: Peer | None = None
        self.asked: set[Peer] | None = None
        self.shunned: set[Peer] = set()
        self.tries = 0
        self.counted = 0
        self.is_taken = False
        self.is_sent = False
        self.is_written = True
        self.is_resumed = False
        self.record: int | None = None
        self.is_orphan = False
        self.unrouted_since: float | None = None
        self.not_before = -math.inf
        self.has_room = True
        self.due = 0.0
        self.pause_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.stream = stream

    def look_after(self, now: float, pause_s: float) -> None:
        """Look after it when the pause is over."""
        self.pause_s = pause_s
        self.due = now + pause_s

    def may_be_with(self, peer: Peer) -> bool:
        """Whether a process may have it that has not said so."""
        return self.is_sent and self.holder is None and (self.asked is None or peer in self.asked)

    def may_have_died(self) -> None:
        """A process is gone that may have had it: of all that may have had one attempt, one did."""
        self.tries += self.counted < self.attempt
        self.counted = self.attempt

    def let_go(self) -> None:
        """Nobody has it: the next attempt may go when it is its turn."""
        self.attempt += 1
        self.holder, self.asked = None, None
        self.is_sent, self.is_taken = False, False

    def begin_again(self, not_before: float) -> None:
        """Nobody is there to take it, and who had it may take the next attempt."""
        self.let_go()
        self.unrouted_since = None
        self.shunned.clear()
        self.is_orphan = True
        self.due = self.not_before = max(self.not_before, not_before)

    def revive(self, now: float) -> None:
        """A dead letter is sent again: with all its attempts, without a deadline, and beyond the room of the outbox."""
        self.tries, self.deadline, self.has_room = 0, None, False
        self.begin_again(now)

    @property
    def may_repeat(self) -> bool:
        """Whether it may be given to another process when the one that has it vanished."""
        return self.envelope.delivery is not Delivery.BEST_EFFORT

    def settle(self, outcome: Envelope | Exception | None) -> None:
        """Tell the sender what became of it; the first word counts."""
        if self.future.done():
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Lanes:
    """Keeps messages of one source, key and target in order.

    The next one may go when all before it are done, or lie with the one process that listens: it keeps their order. One
    that must go again waits for that at its old place.

    Args:
        listeners: the processes that listen at an address.
        go: sends a message whose turn it is.
    """

    def __init__(self, listeners: Callable[[str], list[Peer]], go: Callable[[Post], None]) -> None:
        self._listeners = listeners
        self._go = go
        self._lanes: dict[Lane, deque[Post]] = {}

    def join(self, post: Post) -> None:
        """Send a message when it is its turn, which may be now."""
        if post.lane is None:
            self._go(post)
        else:
            self._lanes.setdefault(post.lane, deque()).append(post)
            self.advance(post)

    def leave(self, post: Post) -> None:
        """The message is over."""
        lane = None if post.lane is None else self._lanes.get(post.lane)
        if post.lane is None or lane is None:
            return
        lane.remove(post)
        if lane:
            self.advance(lane[0])
        else:
            del self._lanes[post.lane]

    def advance(self, post: Post) -> None:
        """Something is known of a message: send those of its lane whose turn it is now."""
        if post.lane is None:
            if not post.is_sent:
                self._go(post)
            return
        holders: set[Peer | None] = set()
        for next_one in tuple(self._lanes.get(post.lane, ())):
            if not next_one.is_sent:
                if not holders or self._may_follow(next_one, holders):
                    self._go(next_one)
                return
            holders.add(next_one.holder)

    def _may_follow(self, post: Post, holders: set[Peer | None]) -> bool:
        """Whether a message can only go to the process that has all before it."""
        is_one = len(holders) == 1 and holders == set(self._listeners(post.envelope.target))
        return is_one and holders.isdisjoint(post.shunned)
