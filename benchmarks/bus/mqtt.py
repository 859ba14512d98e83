"""Messages between two clients of one broker: over the bus, and by aiomqtt alone.

Both ends are in this process, so that its CPU time is that of sender and receiver together; the broker is another one.
"""

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager

import aiomqtt

from benchmarks.bus.messages import Arrivals, Requests, check_echo
from benchmarks.bus.mosquitto import HOST
from benchmarks.bus.options import AIOMQTT, Amounts
from mas.bus.mqtt import MqttBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.concurrency import together
from mas.core.messages import Envelope, Note, Payload

OVER_MQTT = "mas MqttBus"
_NO_DELAY = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
"""Without it both ends wait for delayed acknowledgements."""
_INFLIGHT = 1024
"""Publications that a bare client may have unacknowledged; its default of 20 would hold the others back."""
_TO, _BACK = "echo", "answers"


class _OneWay(ABC):
    """`in_flight` senders, each sends on as soon as a message is taken; over when all are handled."""

    def __init__(self, amounts: Amounts, arrivals: Arrivals) -> None:
        self._amounts, self._arrivals = amounts, arrivals

    async def run(self, number: int) -> int:
        amounts = self._amounts
        self._arrivals.expect(amounts.requests)
        await together((self._send(amounts.requests // amounts.in_flight) for _ in range(amounts.in_flight)), "send")
        await self._arrivals.all_here()
        return amounts.requests

    @abstractmethod
    async def _send(self, count: int) -> None:
        """Send that many, one after the other."""


class OneWay(_OneWay):
    """Over the bus: a message is taken when its receiver has it."""

    name = OVER_MQTT

    def __init__(self, bus: MqttBus, amounts: Amounts, arrivals: Arrivals) -> None:
        super().__init__(amounts, arrivals)
        self._bus = bus
        self._note = Note(text="x" * amounts.payload_bytes)
        self._envelopes = EnvelopeFactory("speaker")

    async def _send(self, count: int) -> None:
        for _ in range(count):
            await self._bus.publish(self._envelopes.new("sink", self._note))


class BareRequests:
    """The same requests by two of aiomqtt's clients: a number in front of the text finds the asker of an answer."""

    name = AIOMQTT

    def __init__(self, client: aiomqtt.Client, amounts: Amounts) -> None:
        self._client, self._amounts = client, amounts
        self._text = "x" * amounts.payload_bytes
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._asked = 0

    async def run(self, number: int) -> int:
        amounts = self._amounts
        await together((self._ask(amounts.requests // amounts.in_flight) for _ in range(amounts.in_flight)), "ask")
        return amounts.requests

    async def _ask(self, count: int) -> None:
        for _ in range(count):
            self._asked += 1
            answer = self._waiting[self._asked] = asyncio.get_running_loop().create_future()
            await self._client.publish(_TO, f"{self._asked} {self._text}", qos=1)
            check_echo(await answer, self._text)

    async def hear(self) -> None:
        """Take answers, as long as there is a connection."""
        async for message in self._client.messages:
            number, _, text = _text(message).partition(" ")
            self._waiting.pop(int(number)).set_result(text)


class BareOneWay(_OneWay):
    """By two of aiomqtt's clients: a message is taken when the broker has it."""

    name = AIOMQTT

    def __init__(self, client: aiomqtt.Client, amounts: Amounts, arrivals: Arrivals) -> None:
        super().__init__(amounts, arrivals)
        self._client = client
        self._text = "x" * amounts.payload_bytes

    async def _send(self, count: int) -> None:
        for _ in range(count):
            await self._client.publish("sink", self._text, qos=1)


@asynccontextmanager
async def open_mqtt_requests(amounts: Amounts, port: int) -> AsyncIterator[Requests]:
    """A bus that asks, and another one with a handler."""

    async def echo(envelope: Envelope) -> Payload:
        return envelope.payload

    async with (
        MqttBus.connect(_url("echo", port)) as there,
        MqttBus.connect(_url("asker", port)) as here,
        serve(there, "echo", echo, concurrency=max(64, amounts.in_flight)),
    ):
        yield Requests(here, amounts, amounts.in_flight, OVER_MQTT)


@asynccontextmanager
async def open_mqtt_one_way(amounts: Amounts, port: int) -> AsyncIterator[OneWay]:
    """A bus that sends, and another one that counts."""
    arrivals = Arrivals(amounts.payload_bytes)

    async def receive(envelope: Envelope) -> None:
        arrivals.count(envelope.payload.content)

    async with (
        MqttBus.connect(_url("sink", port)) as there,
        MqttBus.connect(_url("speaker", port)) as here,
        serve(there, "sink", receive, concurrency=max(64, amounts.in_flight)),
    ):
        yield OneWay(here, amounts, arrivals)


@asynccontextmanager
async def open_bare_requests(amounts: Amounts, port: int) -> AsyncIterator[BareRequests]:
    """Two of aiomqtt's clients; one answers with what it is sent."""

    async def answer(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            await client.publish(_BACK, message.payload, qos=1)

    async with _client(port) as there, _client(port) as here:
        await there.subscribe(_TO, qos=1)
        await here.subscribe(_BACK, qos=1)
        requests = BareRequests(here, amounts)
        async with _meanwhile(answer(there), requests.hear()):
            yield requests


@asynccontextmanager
async def open_bare_one_way(amounts: Amounts, port: int) -> AsyncIterator[BareOneWay]:
    """Two of aiomqtt's clients; one counts."""
    arrivals = Arrivals(amounts.payload_bytes)

    async def count(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            arrivals.count(_text(message))

    async with _client(port) as there, _client(port) as here:
        await there.subscribe("sink", qos=1)
        async with _meanwhile(count(there)):
            yield BareOneWay(here, amounts, arrivals)


def _url(user: str, port: int) -> str:
    return f"mqtt://{user}@{HOST}:{port}/bench"


def _client(port: int) -> aiomqtt.Client:
    client = aiomqtt.Client(
        HOST,
        port,
        protocol=aiomqtt.ProtocolVersion.V5,
        socket_options=_NO_DELAY,
        max_inflight_messages=_INFLIGHT,
    )
    client.pending_calls_threshold = _INFLIGHT  # beyond, it warns of every call
    return client


def _text(message: aiomqtt.Message) -> str:
    assert isinstance(message.payload, bytes)
    return message.payload.decode()


@asynccontextmanager
async def _meanwhile(*loops: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run these until the block is over."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(loop) for loop in loops]
        yield
        for task in tasks:
            task.cancel()
