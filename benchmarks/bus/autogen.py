"""The same messages through autogen-core's in-process runtime.

In its favour: its tracing is switched off, as ours is when nobody watches.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from autogen_core import (
    AgentId,
    DefaultTopicId,
    MessageContext,
    RoutedAgent,
    SingleThreadedAgentRuntime,
    TypeSubscription,
    message_handler,
)
from opentelemetry.trace import NoOpTracerProvider

from benchmarks.bus.messages import Arrivals, check_echo, receiver_name
from benchmarks.bus.options import AUTOGEN, Amounts
from mas.core.concurrency import together

_TOPIC = "fan_out"


@dataclass
class Text:
    """What is sent."""

    text: str


class Echo(RoutedAgent):
    """Answers with what it was sent."""

    @message_handler
    async def answer(self, message: Text, ctx: MessageContext) -> Text:
        return message


class Receiver(RoutedAgent):
    """Counts what it was sent."""

    def __init__(self, arrivals: Arrivals) -> None:
        super().__init__("receiver")
        self._arrivals = arrivals

    @message_handler
    async def receive(self, message: Text, ctx: MessageContext) -> None:
        self._arrivals.count(message.text)


class AutogenRequests:
    """`in_flight` askers, each asks again as soon as it is answered."""

    name = AUTOGEN

    def __init__(self, runtime: SingleThreadedAgentRuntime, amounts: Amounts, in_flight: int) -> None:
        self._runtime = runtime
        self._each = amounts.requests // in_flight
        self._in_flight = in_flight
        self._text = Text("x" * amounts.payload_bytes)
        self._echo = AgentId("echo", "default")

    async def run(self, number: int) -> int:
        await together((self._ask() for _ in range(self._in_flight)), "ask")
        return self._each * self._in_flight

    async def _ask(self) -> None:
        for _ in range(self._each):
            answer = await self._runtime.send_message(self._text, self._echo)
            check_echo(answer.text, self._text.text)


class AutogenFanOut:
    """Bursts of `in_flight` messages to a topic that every receiver has subscribed to."""

    name = AUTOGEN

    def __init__(self, runtime: SingleThreadedAgentRuntime, amounts: Amounts, arrivals: Arrivals) -> None:
        self._runtime = runtime
        self._amounts = amounts
        self._arrivals = arrivals
        self._text = Text("x" * amounts.payload_bytes)
        self._topic = DefaultTopicId(_TOPIC)

    async def run(self, number: int) -> int:
        amounts = self._amounts
        for _ in range(amounts.messages // amounts.in_flight):
            self._arrivals.expect(amounts.in_flight * amounts.receivers)
            for _ in range(amounts.in_flight):
                await self._runtime.publish_message(self._text, self._topic)
            await self._arrivals.all_here()
        return amounts.messages * amounts.receivers


@asynccontextmanager
async def _running() -> AsyncIterator[SingleThreadedAgentRuntime]:
    runtime = SingleThreadedAgentRuntime(tracer_provider=NoOpTracerProvider())
    runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop_when_idle()
        await runtime.close()


@asynccontextmanager
async def open_autogen_requests(amounts: Amounts, in_flight: int) -> AsyncIterator[AutogenRequests]:
    """A runtime with one agent in it."""
    async with _running() as runtime:
        await Echo.register(runtime, "echo", lambda: Echo("echo"))
        yield AutogenRequests(runtime, amounts, in_flight)


@asynccontextmanager
async def open_autogen_fan_out(amounts: Amounts) -> AsyncIterator[AutogenFanOut]:
    """A runtime with all receivers in it."""
    arrivals = Arrivals(amounts.payload_bytes)
    async with _running() as runtime:
        for index in range(amounts.receivers):
            name = receiver_name(index)
            await Receiver.register(runtime, name, lambda: Receiver(arrivals))
            await runtime.add_subscription(TypeSubscription(_TOPIC, name))
        yield AutogenFanOut(runtime, amounts, arrivals)
