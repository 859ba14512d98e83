"""What came to this process from others: each message is handed to the local bus once, and what became of it is kept.

The desk never speaks first: it answers messages, and questions after them. So a word that was lost is only asked for
again, and a message that comes twice gets the same word twice.
"""

import asyncio
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from functools import partial

import msgspec

from mas.bus.memory import MemoryBus
from mas.bus.mqtt_frames import Answer, Codec, Failed, Find, Mode, Send, Standing, Status
from mas.bus.mqtt_parts import way_to
from mas.bus.mqtt_topics import Peer
from mas.bus.parts import Take
from mas.bus.references import References
from mas.core.errors import Closed, Malformed, MasError, NoRoute
from mas.core.messages import Delivery, Envelope

Key = tuple[Peer, str]
Handed = tuple[str, str]
"""(address, id) of a message in a local queue or in a receiver's hands."""


class Case:
    """One message of another process.

    Attributes:
        attempt: the latest one seen; with the standing `unknown`, all up to it are refused.
        standing: what its sender is told; `reply` (bytes) instead, once there is an answer or an error.
        task: hands it over; None once that is over.
    """

    __slots__ = ("attempt", "delivery", "mode", "reply", "standing", "task")

    def __init__(self, attempt: int, standing: Standing, mode: Mode = "tell", delivery: Delivery | None = None) -> None:
        self.attempt = attempt
        self.standing: Standing = standing
        self.mode = mode
        self.delivery = delivery
        self.reply: bytes | None = None
        self.task: asyncio.Task[None] | None = None


class Desk:
    """The receiving side of one process.

    Args:
        local: the bus that its subscriptions belong to.
        process: this process's name.
        say: sends bytes to a process.
        pass_on: sends bytes that need not arrive; False: they are dropped.
        listens: whether this process listens at an address.
        remembered: cases that are over and kept, at most.
        references: fetches and stores payloads that travel by reference.
    """

    def __init__(
        self,
        local: MemoryBus,
        *,
        process: str,
        codec: Codec,
        say: Callable[[Peer, bytes], None],
        pass_on: Callable[[Peer, bytes], bool],
        listens: Callable[[str], bool],
        remembered: int,
        references: References,
    ) -> None:
        self.repeated = 0
        self._local = local
        self._process = process
        self._codec = codec
        self._say = say
        self._way_to = partial(way_to, process=process, codec=codec, pass_on=pass_on, counters=local.parts.counters)
        self._listens = listens
        self._remembered = remembered
        self._references = references
        self._cases: dict[Key, Case] = {}
        self._over: OrderedDict[Key, None] = OrderedDict()
        self._expected: Counter[Handed] = Counter()
        self._admitted: Counter[Handed] = Counter()
        self._early: Counter[Handed] = Counter()
        self._open: dict[Handed, deque[Key]] = {}
        self._words: defaultdict[Peer, dict[str, tuple[int, Standing]]] = defaultdict(dict)
        local.tap(self._on_admitted)

    def send(self, sender: Peer, frame: Send) -> None:
        """A message came; its envelope says who sent it, and when it expires on this process's clock."""
        key = (sender, frame.ticket)
        case = self._cases.get(key)
        if case is not None and (frame.attempt <= case.attempt or case.standing not in ("left", "unknown")):
            self.repeated += 1
            self._tell(key, case, frame.attempt)
            return
        self._over.pop(key, None)
        case = self._cases[key] = Case(frame.attempt, "held", frame.mode, frame.envelope.delivery)
        take = self._way_to(*key, frame.attempt) if frame.is_streamed else None
        hand_over = self._hand_over(key, case, frame.envelope, take)
        case.task = asyncio.create_task(hand_over, name=f"mqtt {frame.envelope.id}")
        case.task.add_done_callback(lambda task: self._handed_over(key, case, is_cancelled=task.cancelled()))
        if frame.eager:
            self._tell(key, case, frame.attempt)

    def find(self, sender: Peer, frame: Find) -> None:
        """A sender has heard nothing: tell it, and promise not to take what has not come."""
        for ticket, attempt in frame.tickets:
            key = (sender, ticket)
            case = self._cases.get(key)
            if case is None:
                case = self._cases[key] = Case(attempt, "unknown")
                self._finish(key)
            elif case.standing == "unknown":
                case.attempt = max(case.attempt, attempt)
            self._tell(key, case, attempt)

    def cancel(self, sender: Peer, ticket: str) -> None:
        """Nobody waits for the message any more; if it is still to come, it is refused."""
        key = (sender, ticket)
        case = self._cases.get(key)
        if case is None:
            self._cases[key] = Case(sys.maxsize, "unknown")
            self._finish(key)
        elif case.task is not None:
            case.attempt = sys.maxsize
            case.task.cancel()
        elif case.standing in ("left", "unknown"):
            case.attempt = sys.maxsize

    def got(self, sender: Peer, tickets: Iterable[str]) -> None:
        """Answers arrived: only remember that there was one."""
        for ticket in tickets:
            case = self._cases.get((sender, ticket))
            if case is not None and case.reply is not None:
                case.reply, case.standing = None, "done"

    def lost(self, sender: Peer) -> None:
        """A sender is gone: nobody waits for what it asked."""
        for (peer, _), case in tuple(self._cases.items()):
            if peer == sender and case.task is not None:
                case.task.cancel()

    def done(self, handed: Handed) -> None:
        """A receiver has handled a message."""
        waiting = self._open.get(handed)
        if waiting:
            self._close(handed, "done")
        elif self._admitted[handed] > self._early[handed]:
            self._early[handed] += 1

    def leave(self, address: str) -> None:
        """A subscription ended. When nobody listens here any more, what is not done goes to another process."""
        if self._listens(address):
            return
        for handed in [handed for handed in self._open if handed[0] == address]:
            while handed in self._open:
                self._close(handed, "left")

    async def close(self) -> None:
        """Wait for what is being handed over; the local bus must be closed, which ends it.

        What is in its queues can still be received here, so it is not given to others.
        """
        tasks = [case.task for case in self._cases.values() if case.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        for handed in tuple(self._open):
            while handed in self._open:
                self._close(handed, "done")
        self._speak()

    async def _hand_over(self, key: Key, case: Case, envelope: Envelope, take: Take | None) -> None:
        try:
            envelope = await self._references.redeem(envelope)
            if case.mode == "ask":
                answer = await self._local.request_in_parts(envelope, take)
                timeless = msgspec.structs.replace(answer, deadline=None)  # it would be on this process's clock
                self._reply(key, case, Answer(self._process, key[1], await self._references.stow(timeless)))
            else:
                await self._publish(key, case, envelope)
        except MasError as error:
            self._failed(key, case, envelope, error)

    def _handed_over(self, key: Key, case: Case, *, is_cancelled: bool) -> None:
        """The task ended, or was cancelled before it began."""
        case.task = None
        if is_cancelled:
            case.standing = "unknown"
        if case.standing != "accepted":
            self._finish(key)

    async def _publish(self, key: Key, case: Case, envelope: Envelope) -> None:
        """Into a queue; from then on it waits for `done`, unless the local bus had the id before and drops it."""
        handed = (envelope.target, envelope.id)
        self._expected[handed] += 1
        try:
            await self._local.publish(envelope, wait=case.mode == "tell")
        except asyncio.CancelledError:
            _less(self._admitted, handed)
            raise
        finally:
            _less(self._expected, handed)
        case.standing = "done"
        if self._admitted[handed] > 0:
            _less(self._admitted, handed)
            if self._early[handed] > 0:
                _less(self._early, handed)
            elif case.delivery is not Delivery.BEST_EFFORT:
                case.standing = "accepted"
                self._open.setdefault(handed, deque()).append(key)
        self._tell(key, case, case.attempt)

    def _on_admitted(self, envelope: Envelope) -> None:
        handed = (envelope.target, envelope.id)
        if self._expected.get(handed):
            self._admitted[handed] += 1

    def _failed(self, key: Key, case: Case, envelope: Envelope, error: MasError) -> None:
        """Tell the error, or, where the local listeners left, that another process may take it."""
        is_left = isinstance(error, NoRoute) or (isinstance(error, Closed) and case.delivery is Delivery.AT_LEAST_ONCE)
        if is_left and not self._listens(envelope.target):
            case.standing = "left"
            self._tell(key, case, case.attempt)
        else:
            self._reply(key, case, Failed(self._process, key[1], type(error).__name__, str(error)))

    def _reply(self, key: Key, case: Case, frame: Answer | Failed) -> None:
        try:
            case.reply = self._codec.encode(frame)
        except Malformed as error:
            case.reply = self._codec.encode(Failed(self._process, key[1], "Malformed", str(error)))
        self._say(key[0], case.reply)

    def _close(self, handed: Handed, standing: Standing) -> None:
        """The oldest open message of this address and id is over."""
        keys = self._open[handed]
        key = keys.popleft()
        if not keys:
            del self._open[handed]
        case = self._cases[key]
        case.standing = standing
        self._finish(key)
        self._tell(key, case, case.attempt)

    def _tell(self, key: Key, case: Case, attempt: int) -> None:
        """Say how it stands; short words of one turn of the event loop go together."""
        if case.reply is not None:
            self._say(key[0], case.reply)
            return
        if not self._words:
            asyncio.get_running_loop().call_soon(self._speak)
        self._words[key[0]][key[1]] = (attempt, case.standing)

    def _speak(self) -> None:
        words, self._words = self._words, defaultdict(dict)
        for peer, standings in words.items():
            told = [(ticket, attempt, standing) for ticket, (attempt, standing) in standings.items()]
            self._say(peer, self._codec.encode(Status(self._process, told)))

    def _finish(self, key: Key) -> None:
        """Keep what became of it for a while."""
        self._over[key] = None
        self._over.move_to_end(key)
        if len(self._over) > self._remembered:
            oldest, _ = self._over.popitem(last=False)
            self._cases.pop(oldest, None)


def _less(counter: Counter[Handed], handed: Handed) -> None:
    counter[handed] -= 1
    if counter[handed] <= 0:
        del counter[handed]
