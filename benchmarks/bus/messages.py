"""Messages of one size through the in-process bus: requests with answers, and one message to several receivers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from benchmarks.bus.options import Amounts
from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.bus import Bus
from mas.core.concurrency import together
from mas.core.errors import RunError
from mas.core.messages import Envelope, Note, Payload

OURS = "mas MemoryBus"


class Requests:
    """`in_flight` askers, each asks again as soon as it is answered; a handler answers with what it was sent."""

    def __init__(self, bus: Bus, amounts: Amounts, in_flight: int, name: str = OURS) -> None:
        self.name = name
        self._bus = bus
        self._each = amounts.requests // in_flight
        self._in_flight = in_flight
        self._note = Note(text="x" * amounts.payload_bytes)
        self._envelopes = EnvelopeFactory("asker")

    async def run(self, number: int) -> int:
        await together((self._ask() for _ in range(self._in_flight)), "ask")
        return self._each * self._in_flight

    async def _ask(self) -> None:
        for _ in range(self._each):
            answer = await self._bus.request(self._envelopes.new("echo", self._note))
            check_echo(answer.payload.content, self._note.text)


class FanOut:
    """Bursts of `in_flight` messages to every receiver; the next burst begins when all of one are handled."""

    name = OURS

    def __init__(self, bus: MemoryBus, amounts: Amounts, arrivals: "Arrivals") -> None:
        self._bus = bus
        self._amounts = amounts
        self._arrivals = arrivals
        self._note = Note(text="x" * amounts.payload_bytes)
        self._targets = [receiver_name(index) for index in range(amounts.receivers)]
        self._envelopes = EnvelopeFactory("speaker")

    async def run(self, number: int) -> int:
        amounts = self._amounts
        for _ in range(amounts.messages // amounts.in_flight):
            self._arrivals.expect(amounts.in_flight * amounts.receivers)
            for _ in range(amounts.in_flight):
                for target in self._targets:
                    await self._bus.publish(self._envelopes.new(target, self._note))
            await self._arrivals.all_here()
        return amounts.messages * amounts.receivers


class Arrivals:
    """Counts deliveries, so that whoever sent them can wait until all are handled."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._missing = 0
        self._complete = asyncio.Event()

    def expect(self, count: int) -> None:
        """That many are about to be sent."""
        self._missing = count
        self._complete.clear()

    def count(self, text: str) -> None:
        """One was handled.

        Raises:
            RunError: it is not what was sent, or nobody sent it.
        """
        if len(text) != self._length or self._missing == 0:
            raise RunError("a message arrived that was not sent like this: the measurement means nothing")
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()

    async def all_here(self) -> None:
        """Wait for the last one."""
        await self._complete.wait()


def receiver_name(index: int) -> str:
    """What the index-th receiver of a fan-out is called."""
    return f"receiver_{index}"


def check_echo(answer: str, asked: str) -> None:
    """Refuse an answer that is not what was asked.

    Raises:
        RunError: the measurement means nothing.
    """
    if answer != asked:
        raise RunError(f"an answer of {len(answer)} characters came to a request of {len(asked)}")


@asynccontextmanager
async def open_requests(amounts: Amounts, in_flight: int) -> AsyncIterator[Requests]:
    """A bus with one handler on it."""
    bus = MemoryBus()

    async def echo(envelope: Envelope) -> Payload:
        return envelope.payload

    async with serve(bus, "echo", echo, concurrency=max(64, in_flight)):
        yield Requests(bus, amounts, in_flight)
    await bus.close()


@asynccontextmanager
async def open_fan_out(amounts: Amounts) -> AsyncIterator[FanOut]:
    """A bus with all receivers on it."""
    bus = MemoryBus()
    arrivals = Arrivals(amounts.payload_bytes)

    async def receive(envelope: Envelope) -> None:
        arrivals.count(envelope.payload.content)

    async with AsyncExitStack() as stack:
        for index in range(amounts.receivers):
            await stack.enter_async_context(serve(bus, receiver_name(index), receive))
        yield FanOut(bus, amounts, arrivals)
    await bus.close()
