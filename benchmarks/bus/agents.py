"""Many agents on one bus: what each of them costs, however many there are."""

import gc
import tracemalloc
from contextlib import AsyncExitStack

from benchmarks.bus.messages import check_echo
from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.messages import Envelope, Note, Payload


class Agents:
    """Starts `count` agents on one bus, asks each of them once, and stops them; again until `total` were started."""

    def __init__(self, count: int, total: int) -> None:
        self.name = f"mas, {count:,} agents"
        self.count = count
        self._sets = total // count

    async def run(self, number: int) -> int:
        for _ in range(self._sets):
            bus = MemoryBus()
            async with AsyncExitStack() as stack:
                await self._start(bus, stack)
                await self._ask_all(bus)
            await bus.close()
        return self._sets * self.count

    async def bytes_each(self) -> float:
        """Memory that Python allocated per agent: all listen, each has answered once, nothing is on its way."""
        gc.collect()
        tracemalloc.start()
        try:
            async with AsyncExitStack() as stack:
                before, _ = tracemalloc.get_traced_memory()
                bus = MemoryBus()
                await self._start(bus, stack)
                await self._ask_all(bus)
                gc.collect()
                after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        return (after - before) / self.count

    async def _start(self, bus: MemoryBus, stack: AsyncExitStack) -> None:
        for index in range(self.count):
            await stack.enter_async_context(serve(bus, f"agent_{index}", _echo))

    async def _ask_all(self, bus: MemoryBus) -> None:
        envelopes = EnvelopeFactory("asker")
        note = Note(text="?")
        for index in range(self.count):
            answer = await bus.request(envelopes.new(f"agent_{index}", note))
            check_echo(answer.payload.content, note.text)


async def _echo(envelope: Envelope) -> Payload:
    return envelope.payload
