"""Messages as spans: a sender writes its trace context into the envelope, and the handler continues it.

Names and attributes are those of OpenTelemetry's conventions for messaging; payloads are never recorded.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec

from mas.core.bus import Bus, Stream
from mas.core.messages import Beat, Envelope, Payload
from mas.core.tracing import Attributes, Tracer, current_tracer

Handler = Callable[[Envelope], Awaitable[Payload | None]]


class TracedSender:
    """Sends over a bus with a span around each message; a request's lasts until its answer."""

    def __init__(self, bus: Bus, tracer: Tracer) -> None:
        self._bus, self._tracer = bus, tracer

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        with self._sending(envelope) as sent:
            await self._bus.publish(sent, wait=wait)

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        with self._sending(envelope) as sent:
            return await self._bus.request(sent, timeout_s=timeout_s)

    @asynccontextmanager
    async def stream(
        self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256
    ) -> AsyncIterator[Stream]:
        """As `Bus.stream`; the span lasts as long as it is read."""
        with self._sending(envelope) as sent:
            async with self._bus.stream(sent, timeout_s=timeout_s, queue=queue) as stream:
                yield stream

    @contextmanager
    def _sending(self, envelope: Envelope) -> Iterator[Envelope]:
        attributes = _attributes("send", envelope)
        with self._tracer.span(f"send {envelope.target}", attributes, kind="producer") as span:
            yield msgspec.structs.replace(envelope, traceparent=span.traceparent)


def traced_handler(address: str, handler: Handler) -> Handler:
    """The handler with a span around each message; the handler itself where no tracer is on.

    A message without trace context begins a trace. Heartbeats are not traced.
    """
    tracer = current_tracer()
    if tracer is None:
        return handler

    async def handle(envelope: Envelope) -> Payload | None:
        if envelope.kind == Beat.kind:
            return await handler(envelope)
        attributes, parent = _attributes("process", envelope), envelope.traceparent
        name = f"process {address}"
        with tracer.span(name, attributes, kind="consumer", within=parent, is_root=parent is None):
            return await handler(envelope)

    return handle


def _attributes(operation: str, envelope: Envelope) -> Attributes:
    return {
        "messaging.system": "mas",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": envelope.target,
        "messaging.message.id": envelope.id,
        "messaging.message.conversation_id": envelope.correlation,
        "gen_ai.conversation.id": envelope.episode,
        "mas.message.kind": envelope.kind,
        "mas.message.attempt": envelope.attempt if envelope.attempt > 1 else None,
    }
