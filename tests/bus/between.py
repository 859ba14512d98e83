"""Several processes' buses in one test, with a real broker between them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.bus.serve import EnvelopeFactory
from mas.core.messages import Envelope, Payload

PATIENCE_S = 0.3
QUICK = MqttOptions(absent_s=0.5, ack_s=0.2)
ASK = EnvelopeFactory("asker")


def as_user(url: str, user: str) -> str:
    return url.replace("alice", user)


async def until(holds, limit_s: float = 20.0) -> None:
    async with asyncio.timeout(limit_s):
        while not holds():  # noqa: ASYNC110 - what it waits for is in another process
            await asyncio.sleep(0.01)


async def vanish(bus: MqttBus) -> None:
    """The process dies: its connection breaks, and it says nothing more."""
    link = bus._node.connection
    link._keeping.cancel()
    client, link._client = link._client, None
    bus._node._checking.cancel()
    client._client._sock_close()
    with contextlib.suppress(asyncio.CancelledError):
        await link._keeping


async def echo(envelope: Envelope) -> Payload:
    return envelope.payload


@asynccontextmanager
async def processes(url: str, number: int, options: MqttOptions = QUICK) -> AsyncIterator[list[MqttBus]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(MqttBus.connect(url, options=options)) for _ in range(number)]
