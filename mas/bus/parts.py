"""Answers in parts: what a handler sends before its answer, and the stream that its requester reads.

Parts are best effort and numbered; the answer says how many there were. So a reader knows what it has missed without
any acknowledgement. Leaves out on purpose: taps and journals, which know messages and answers only.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Self

import msgspec

from mas.core.bus import Gap, PartStatistics, Restart
from mas.core.errors import Closed
from mas.core.messages import Delivery, Envelope, Payload

Run = tuple[int, int]
"""Which attempt at an answer a part belongs to: the how manieth process is asked, and the how manieth time it tries."""
Take = Callable[[Envelope], bool]
"""Takes a part on its way to the reader; False: it was dropped."""


@dataclass(slots=True)
class PartCounters:
    """The running counts behind `PartStatistics`."""

    accepted: int = 0
    delivered: int = 0
    passed: int = 0
    dropped: int = 0
    waiting: int = 0
    missing: int = 0

    def freeze(self) -> PartStatistics:
        """The counts as they are now."""
        return PartStatistics(**asdict(self))


def part_of(request: Envelope, payload: Payload, *, sequence: int, attempt: int, principal: str | None) -> Envelope:
    """A part of the answer to a request; as readable as the answer is. `principal`: who answers."""
    visibility = request.visibility
    if visibility is not None:
        visibility |= {request.source if request.principal is None else request.principal}
    return Envelope(
        id=f"{request.id}/part/{attempt}/{sequence}",
        kind=payload.kind,
        source=request.target,
        target=request.source,
        payload=payload,
        correlation=request.id,
        causation=request.id,
        key=request.key,
        sequence=sequence,
        final=False,
        attempt=attempt,
        delivery=Delivery.BEST_EFFORT,
        visibility=visibility,
        principal=principal,
        run=request.run,
        episode=request.episode,
        group=request.group,
        turn=request.turn,
        traceparent=request.traceparent,
    )


class PartLine(msgspec.Struct, eq=False):
    """The way of the parts of one answer, from its handler to `take`; the request in flight holds it until it ends.

    `attempt`: whose parts they are; `sent`: how many it has sent.
    """

    take: Take
    counters: PartCounters
    attempt: int = 0
    sent: int = 0

    def move_to(self, request: Envelope) -> bool:
        """Move on to a later attempt at the answer, whose parts count from 0. False: this attempt is over, as another
        receiver was given the request since."""
        if request.attempt > self.attempt:
            self.attempt, self.sent = request.attempt, 0
        return request.attempt == self.attempt

    def send(self, request: Envelope, payload: Payload, principal: str | None) -> None:
        """Send a part of this attempt. `principal`: who answers."""
        part = part_of(request, payload, sequence=self.sent, attempt=self.attempt, principal=principal)
        self.sent += 1
        is_taken = False
        try:
            is_taken = self.take(part)
        finally:
            if not is_taken:
                self.counters.dropped += 1

    def closing(self, request: Envelope, answer: Envelope) -> Envelope:
        """The answer, with the number of its parts and the attempt that they belong to."""
        if not self.move_to(request):
            return answer
        return msgspec.structs.replace(answer, sequence=self.sent, final=True, attempt=self.attempt)


class PartStream:
    """One request and its answer in parts; see `Bus.stream` and `mas.core.bus.Stream`.

    Args:
        envelope: the request.
        ask: makes the request, given this stream; its parts are given to `take`.
        queue: parts that wait for the reader, at most.

    Raises:
        ValueError: the queue is below 1.
    """

    def __init__(
        self,
        envelope: Envelope,
        ask: Callable[["PartStream"], Awaitable[Envelope]],
        *,
        queue: int,
        counters: PartCounters,
    ) -> None:
        if queue < 1:
            raise ValueError(f"the queue of a stream is {queue}; it must be 1 or more")
        self._envelope, self._ask = envelope, ask
        self._room = queue
        self._counters = counters
        self._queue: deque[Envelope] = deque()
        self._news = asyncio.Event()
        self._asking: asyncio.Task[Envelope] | None = None
        self._came: tuple[Run, int] = ((0, 0), -1)  # the attempt and number of the latest part taken
        self._read: Run | None = None  # the attempt whose parts the reader has
        self._next = 0  # the number of it to be told next
        self._is_left = False
        self.sending = 1  # the how manieth process gave the answer

    async def __aenter__(self) -> Self:
        self._asking = asyncio.create_task(self._asked(), name=f"stream {self._envelope.id}")
        self._asking.add_done_callback(lambda _: self._news.set())
        return self

    async def __aexit__(self, *error: object) -> None:
        assert self._asking is not None
        self._is_left = True
        self._drop_all()
        self._asking.cancel()
        await asyncio.wait([self._asking])
        if not self._asking.cancelled():
            self._asking.exception()  # read once, so that it is not reported as never retrieved

    def take(self, part: Envelope, sending: int = 1) -> bool:
        """A part came from the how manieth process; False: it is dropped. Costs the same whatever its number says."""
        run = (sending, part.attempt)
        if self._is_left or (run, part.sequence) <= self._came:
            return False
        if run > self._came[0]:
            self._drop_all()
        if len(self._queue) >= self._room:
            return False
        self._came = (run, part.sequence)
        self._queue.append(part)
        self._counters.waiting += 1
        self._news.set()
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Envelope | Gap | Restart:
        assert self._asking is not None
        while (item := self._pop()) is None:
            if self._asking.done():
                return self._last()
            self._news.clear()
            await self._news.wait()
        return item

    async def answer(self) -> Envelope:
        assert self._asking is not None
        await asyncio.wait([self._asking])
        return self._outcome()

    async def _asked(self) -> Envelope:
        return await self._ask(self)

    def _outcome(self) -> Envelope:
        assert self._asking is not None
        if self._asking.cancelled():
            raise Closed(f"request {self._envelope.id!r}: its stream was left before the answer came")
        return self._asking.result()

    def _pop(self) -> Envelope | Gap | Restart | None:
        """The next thing to tell the reader, None: nothing has come."""
        if not self._queue:
            return None
        sequence = self._queue[0].sequence
        told = self._before(self._came[0], sequence)
        if told is not None:
            return told
        self._next = sequence + 1
        self._counters.waiting -= 1
        self._counters.delivered += 1
        return self._queue.popleft()

    def _last(self) -> Gap | Restart:
        """What is to be told before the answer, if anything is."""
        answer = self._outcome()
        told = self._before((self.sending, answer.attempt), answer.sequence)
        if told is None:
            raise StopAsyncIteration
        return told

    def _before(self, run: Run, sequence: int) -> Gap | Restart | None:
        """What the reader must be told before the part, or the answer, of this number."""
        if self._read is not None and self._read != run:
            self._read, self._next = run, 0
            return Restart()
        self._read = run
        if sequence <= self._next:
            return None
        gap = Gap(self._next, sequence - 1)
        self._next = sequence
        self._counters.missing += 1 + gap.last - gap.first
        return gap

    def _drop_all(self) -> None:
        """Nobody will read what waits."""
        self._counters.waiting -= len(self._queue)
        self._counters.dropped += len(self._queue)
        self._queue.clear()
