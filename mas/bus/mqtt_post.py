"""One message of this process on its way, and the order of those that have a key."""

import asyncio
from collections import deque
from collections.abc import Callable

from mas.bus.mqtt_frames import Mode
from mas.bus.mqtt_topics import Peer
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
        is_orphan: it waits for somebody to listen; whoever was to do it has left or died.
        is_sent: it went to the broker, which has not said that nobody listens.
        unrouted_since: when the broker first said that nobody listens; None: it did not, or took it since.
        due: when to look after it next; `pause_s`: the wait after that.
        timer: fires at the deadline.
        stream: reads the parts of its answer; None: nobody does.
    """

    __slots__ = (
        "asked",
        "attempt",
        "deadline",
        "due",
        "envelope",
        "future",
        "holder",
        "is_orphan",
        "is_sent",
        "lane",
        "mode",
        "pause_s",
        "shunned",
        "stream",
        "ticket",
        "timer",
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
        self.is_sent = False
        self.is_orphan = False
        self.unrouted_since: float | None = None
        self.due = 0.0
        self.pause_s = 0.0
        self.timer: asyncio.TimerHandle | None = None
        self.stream = stream

    def begin_again(self) -> None:
        """Nobody has it, and who had it may take the next attempt."""
        self.attempt += 1
        self.holder, self.asked, self.unrouted_since = None, None, None
        self.shunned.clear()
        self.is_sent, self.is_orphan = False, True

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

    The next one may go when all before it are done, or lie with the one process that listens: it keeps their order.

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
        lane = () if post.lane is None else tuple(self._lanes.get(post.lane, ()))
        for index, next_one in enumerate(lane):
            if next_one.attempt > 0:
                continue
            holders = {earlier.holder for earlier in lane[:index]}
            if holders and holders != set(self._listeners(next_one.envelope.target)):
                return
            if len(holders) > 1:
                return
            self._go(next_one)
            if next_one.holder is None:
                return
