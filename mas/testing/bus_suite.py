"""What the bus contract suites share: a fresh bus per test, and waits that need no sleep.

A bus between processes says what its wire does to the suite: `settled`, `patience_s`, `slack_s` and `principal`.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import Any, ClassVar

import pytest
import pytest_asyncio

from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus, Subscription
from mas.core.messages import Envelope, Note

PATIENCE_S = 0.03


async def is_blocked(task: asyncio.Task[Any], patience_s: float = PATIENCE_S) -> bool:
    """Whether a task is still waiting after `patience_s`."""
    done, _ = await asyncio.wait([task], timeout=patience_s)
    return not done


def start(call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that the test awaits itself."""
    return asyncio.create_task(call, name="under test")


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()


class LoopTurn:
    """Awaiting it lets every task that is ready run once."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def next_text(inbox: Subscription) -> str:
    """The text of the next message, which is then done."""
    envelope = await inbox.receive()
    inbox.done(envelope)
    return envelope.payload.content


def answer_to(request: Envelope, text: str | None = None) -> Envelope:
    """An answer with a text, None: the request's own."""
    return EnvelopeFactory(request.target).answer(request, Note(text=request.payload.content if text is None else text))


def adds_up(bus: Bus) -> bool:
    """Whether every accepted message, and every accepted part, is in exactly one counter."""
    counts = bus.statistics()
    parts = counts.parts
    if parts.accepted != parts.delivered + parts.passed + parts.dropped + parts.waiting:
        return False
    return counts.accepted == counts.delivered + counts.expired + counts.dropped + counts.dead + counts.waiting


class BusSuite:
    """Base of the suites: says how to make the bus under test.

    Attributes:
        patience_s: how long a test waits to see that something does not happen, and its short deadlines.
        slack_s: what a deadline may lose on its way.
        principal: as whom the bus sends; None: each envelope says it.
    """

    patience_s: ClassVar[float] = PATIENCE_S
    slack_s: ClassVar[float] = 0.0
    principal: ClassVar[str | None] = None

    async def make_bus(self) -> Bus:
        """A fresh, open bus."""
        raise NotImplementedError

    async def settled(self, bus: Bus) -> None:
        """Wait until what was sent has arrived. In one process it has."""

    async def is_blocked(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task is still waiting after `patience_s`."""
        return await is_blocked(task, self.patience_s)

    @pytest_asyncio.fixture
    async def bus(self) -> AsyncIterator[Bus]:
        """A fresh bus, whose counters add up when the test ends."""
        bus = await self.make_bus()
        yield bus
        assert adds_up(bus), f"counters do not add up: {bus.statistics()}"
        await bus.close()
        assert adds_up(bus), f"counters do not add up after close: {bus.statistics()}"

    @pytest.fixture
    def sender(self) -> EnvelopeFactory:
        """Makes envelopes from `a`."""
        return EnvelopeFactory("a", principal=self.principal)
