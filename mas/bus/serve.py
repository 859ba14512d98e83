"""Answer the messages of an address with an async function."""

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from mas.bus.envelopes import EnvelopeFactory
from mas.core.bus import Bus, Subscription
from mas.core.errors import Closed
from mas.core.messages import Envelope, Payload

Handler = Callable[[Envelope], Awaitable[Payload | None]]


class Service:
    """A running handler; enter it to listen, leave it to stop. See `serve`."""

    def __init__(self, bus: Bus, address: str, handler: Handler, *, concurrency: int, principal: str | None) -> None:
        self.address = address
        self._bus = bus
        self._handler = handler
        self._listening = bus.subscribe(address, principal=principal, credit=concurrency)
        self._envelopes = EnvelopeFactory(address, principal=principal)
        self._last_of_lane: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        inbox = await self._listening.__aenter__()
        self._loop = asyncio.create_task(self._receive(inbox), name=f"serve {self.address}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._loop.cancel()
        try:
            await asyncio.wait([self._loop])
        finally:
            await self._listening.__aexit__(kind, error, trace)
        if not self._loop.cancelled():
            self._loop.result()

    async def ended(self) -> None:
        """Wait until the bus is closed and every message that was received is handled."""
        assert self._loop is not None
        await asyncio.wait([self._loop])

    async def _receive(self, inbox: Subscription) -> None:
        async with asyncio.TaskGroup() as handlers:
            async for envelope in inbox:
                lane = None if envelope.key is None else (envelope.source, envelope.key)
                if lane is None:
                    handlers.create_task(self._handle(inbox, envelope), name=f"{self.address}: {envelope.id}")
                else:
                    previous = self._last_of_lane.get(lane)
                    self._last_of_lane[lane] = handlers.create_task(
                        self._handle_after(previous, lane, inbox, envelope), name=f"{self.address}: {envelope.id}"
                    )

    async def _handle_after(
        self, previous: asyncio.Task[None] | None, lane: tuple[str, str], inbox: Subscription, envelope: Envelope
    ) -> None:
        try:
            if previous is not None:
                await asyncio.wait([previous])
            await self._handle(inbox, envelope)
        finally:
            if self._last_of_lane.get(lane) is asyncio.current_task():
                del self._last_of_lane[lane]

    async def _handle(self, inbox: Subscription, envelope: Envelope) -> None:
        """Answer one message. The boundary where a handler's failure becomes the requester's error."""
        task = asyncio.current_task()
        assert task is not None
        is_wanted = True

        def stop() -> None:
            nonlocal is_wanted
            is_wanted = False
            task.cancel()

        inbox.on_abandoned(envelope, stop)
        try:
            payload = await self._handler(envelope)
            if envelope.reply_to is not None:
                if payload is None:
                    raise TypeError(f"the handler of {self.address!r} returned no payload for a request")
                await self._bus.reply(envelope, self._envelopes.answer(envelope, payload))
        except asyncio.CancelledError:
            if is_wanted:
                cause = f"the handler of {self.address!r} was cancelled on {envelope.id!r}"
                await self._bus.fail(envelope, Closed(cause))
            raise
        except Exception as error:  # noqa: BLE001 - raised again at the requester
            await self._bus.fail(envelope, error)
        finally:
            inbox.done(envelope)


def serve(bus: Bus, address: str, handler: Handler, *, concurrency: int = 64, principal: str | None = None) -> Service:
    """Listen at an address and answer each message with `handler`, while the result is entered.

        async with serve(bus, "solver", solve):
            answer = await bus.request(envelope)

    Messages of one source and key are handled one after the other. One-way messages are handled too, and what the
    handler returns for them goes nowhere. A handler is cancelled when its requester is, or waits no longer. Leaving
    cancels the handlers that still run: their requesters get Closed.

    Args:
        handler: an exception that it raises goes to the requester: a MasError as it is, others as RemoteError.
        concurrency: messages handled at the same time, at most; more wait at their senders.
        principal: who reads and answers; None: the address.

    Raises:
        ValueError: concurrency is below 1.
        On entry: as `Bus.subscribe`.
    """
    return Service(bus, address, handler, concurrency=concurrency, principal=principal)
