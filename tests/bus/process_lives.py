"""A process with a journal that dies and begins again, all in one test, with a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from between import QUICK, vanish

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.core.errors import Closed, JournalError
from mas.core.messages import Envelope, Note, Payload


def note(text: str, *, key: str | None = None, deadline: float | None = None) -> Envelope:
    """The same message in every life."""
    return Envelope(
        id=f"m{text}", kind="note", source="a", target="b", payload=Note(text=text), key=key, deadline=deadline
    )


class Lives:
    """One process after another with one journal."""

    def __init__(self, url: str, path: Path, options: MqttOptions = QUICK, store: str | None = None) -> None:
        self.path = path
        self._url, self._options, self._store = url, options, store
        self.journal: Journal | None = None
        self.bus: MqttBus | None = None

    async def begin(self) -> MqttBus:
        self.journal = Journal.open(self.path, keep=None)
        connection = MqttBus.connect(self._url, journal=self.journal, options=self._options, store=self._store)
        self.bus = await connection.__aenter__()
        return self.bus

    async def die(self) -> None:
        """The connection breaks without a word; what waits for the disk is written, as if the kill came then."""
        assert self.bus is not None
        assert self.journal is not None
        await vanish(self.bus)
        self.journal.close()
        self.bus = None

    async def again(self) -> MqttBus:
        await self.die()
        return await self.begin()

    async def end(self) -> None:
        if self.bus is not None:
            await self.bus.close()
        if self.journal is not None:
            self.journal.close()


@asynccontextmanager
async def lives(url: str, path: Path, options: MqttOptions = QUICK, store: str | None = None) -> AsyncIterator[Lives]:
    process = Lives(url, path, options, store)
    try:
        yield process
    finally:
        await process.end()


class Slow:
    """A handler that answers when it is told to."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.stopped: list[str] = []
        self.may_answer = asyncio.Event()

    async def __call__(self, envelope: Envelope) -> Payload:
        self.begun.append(envelope.payload.content)
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.stopped.append(envelope.payload.content)
            raise
        return Note(text=f"answer to {envelope.payload.content}")


async def interrupted(asking: "asyncio.Task[object]") -> None:
    """The requester died with its process: nobody hears of the answer."""
    asking.cancel()
    with suppress(asyncio.CancelledError, Closed, JournalError):
        await asking
