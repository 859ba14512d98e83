"""Answering what comes to an address, one handler call per message, and the envelopes of one sender."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import msgspec

from mas.bus.traced import traced_handler
from mas.core.bus import Bus, Subscription
from mas.core.errors import Closed
from mas.core.messages import Delivery, Envelope, Payload

_factories = itertools.count(1)


class EnvelopeFactory:
    """Makes the envelopes of one sender.

    Ids read `source/factory/number`: both count from 1, so that the same program makes the same ids again.

    Args:
        source: address of the sender.
        principal: who sends, as the guard knows it; None: the source.
        run, episode, role: written into every envelope.
        process: goes before every id; needed where several processes share a bus, because each counts from 1.
    """

    def __init__(
        self,
        source: str,
        *,
        principal: str | None = None,
        run: str | None = None,
        episode: str | None = None,
        role: str | None = None,
        process: str = "",
    ) -> None:
        # Envelopes are changed copies of this one: with a dozen fields, copying is faster than making each anew.
        self._blank = Envelope(
            id="",
            kind=Payload.kind,
            source=source,
            target="",
            payload=Payload(),
            principal=principal,
            run=run,
            episode=episode,
            role=role,
        )
        self._prefix = f"{process}/{source}/{next(_factories)}" if process else f"{source}/{next(_factories)}"
        self._numbers = itertools.count(1)

    def new(
        self,
        target: str,
        payload: Payload,
        *,
        key: str | None = None,
        causation: str | None = None,
        deadline: float | None = None,
        delivery: Delivery = Delivery.EFFECTIVELY_ONCE,
        visibility: frozenset[str] | None = None,
        group: str | None = None,
        turn: int | None = None,
        adapter: str | None = None,
    ) -> Envelope:
        """An envelope to `target`; see `Envelope` for the fields."""
        return msgspec.structs.replace(
            self._blank,
            id=f"{self._prefix}/{next(self._numbers)}",
            kind=payload.kind,
            target=target,
            payload=payload,
            key=key,
            causation=causation,
            deadline=deadline,
            delivery=delivery,
            visibility=visibility,
            group=group,
            turn=turn,
            adapter=adapter,
        )

    def answer(self, request: Envelope, payload: Payload) -> Envelope:
        """The answer to a request, in the same run, episode, group and turn.

        The answer to a private request is private: to the request's readers and the requester.
        """
        visibility = request.visibility
        if visibility is not None:
            visibility |= {request.source if request.principal is None else request.principal}
        return msgspec.structs.replace(
            self._blank,
            id=f"{self._prefix}/{next(self._numbers)}",
            kind=payload.kind,
            target=request.source,
            payload=payload,
            correlation=request.id,
            causation=request.id,
            key=request.key,
            delivery=request.delivery,
            visibility=visibility,
            run=request.run,
            episode=request.episode,
            group=request.group,
            turn=request.turn,
            traceparent=request.traceparent,
        )


Handler = Callable[[Envelope], Awaitable[Payload | None]]
Lane = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long to wait before a message is tried again: `first_s`, then `factor` times the wait before, up to `most_s`.

    Raises:
        ValueError: a time is negative, or the factor below 1.
    """

    first_s: float = 0.1
    factor: float = 2.0
    most_s: float = 30.0

    def __post_init__(self) -> None:
        for name, least in (("first_s", 0), ("factor", 1), ("most_s", 0)):
            if not getattr(self, name) >= least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more")

    def delay_s(self, attempt: int) -> float:
        """Seconds to wait after this attempt, counted from 1."""
        return float(min(self.first_s * self.factor ** min(attempt - 1, 64), self.most_s))


class Service:
    """A running handler; enter it to listen, leave it to stop. See `serve`."""

    def __init__(
        self,
        bus: Bus,
        address: str,
        handler: Handler,
        *,
        concurrency: int,
        principal: str | None,
        retry: Backoff | None,
    ) -> None:
        self.address, self._bus = address, bus
        self._handler = traced_handler(address, handler)
        self._listening = bus.subscribe(address, principal=principal, credit=concurrency)
        self._envelopes = EnvelopeFactory(address, principal=principal)
        self._retry = retry
        self._lanes: dict[Lane, dict[asyncio.Task[None], Envelope]] = {}
        self._is_leaving = False
        self._loop: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._inbox = await self._listening.__aenter__()
        self._loop = asyncio.create_task(self._receive(self._inbox), name=f"serve {self.address}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        self._is_leaving = True
        self._loop.cancel()
        try:
            await asyncio.wait([self._loop])
        finally:
            await self._listening.__aexit__(kind, error, trace)
        if not self._loop.cancelled():
            self._loop.result()

    async def drain(self) -> None:
        """Take nothing new, and return when all that was received is handled, and the answers are heard. It is still to
        be left afterwards."""
        assert self._loop is not None
        await self._inbox.withdraw()
        await asyncio.wait([self._loop])
        await self._inbox.heard()

    async def ended(self) -> None:
        """Wait until the bus is closed and every message that was received is handled."""
        assert self._loop is not None
        await asyncio.wait([self._loop])

    async def _receive(self, inbox: Subscription) -> None:
        async with asyncio.TaskGroup() as handlers:
            async for envelope in inbox:
                name = f"{self.address}: {envelope.id}"
                if envelope.key is None:
                    handlers.create_task(self._handle(inbox, envelope), name=name)
                    continue
                key = (envelope.source, envelope.key)
                lane = self._lanes.setdefault(key, {})
                previous = next(reversed(lane), None)
                lane[handlers.create_task(self._handle_after(previous, key, inbox, envelope), name=name)] = envelope

    async def _handle_after(
        self, previous: asyncio.Task[None] | None, key: Lane, inbox: Subscription, envelope: Envelope
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        lane = self._lanes[key]
        try:
            if previous is not None:
                await asyncio.wait([previous])
            await self._handle(inbox, envelope)
        finally:
            lane.pop(task, None)
            if not lane and self._lanes.get(key) is lane:
                del self._lanes[key]

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
            if is_wanted and not (self._is_leaving and _is_redelivered(envelope)):
                cause = f"the handler of {self.address!r} was cancelled on {envelope.id!r}"
                await self._failed(inbox, envelope, Closed(cause))
            elif not is_wanted:
                inbox.done(envelope)
            raise
        except Exception as error:  # noqa: BLE001 - raised again at the requester
            await self._failed(inbox, envelope, error)
        else:
            inbox.done(envelope)

    async def _failed(self, inbox: Subscription, envelope: Envelope, error: Exception) -> None:
        """Tell the requester; give a one-way message back where that is asked for."""
        if envelope.reply_to is not None or self._retry is None:
            try:
                await self._bus.fail(envelope, error)
            finally:
                inbox.done(envelope)
            return
        cause = f"{type(error).__name__}: {error}"
        inbox.nack(envelope, delay_s=self._retry.delay_s(envelope.attempt), cause=cause)
        if envelope.key is not None:
            self._give_back_lane(inbox, (envelope.source, envelope.key))

    def _give_back_lane(self, inbox: Subscription, key: Lane) -> None:
        """What was received behind a message that is to be tried again must come after it again."""
        lane = self._lanes.pop(key)
        for task, envelope in lane.items():
            if task is not asyncio.current_task():
                task.cancel()
                inbox.nack(envelope, is_tried=False)


def _is_redelivered(envelope: Envelope) -> bool:
    """Whether the bus gives a message to another listener when the one that has it leaves."""
    return envelope.reply_to is None or envelope.delivery is Delivery.AT_LEAST_ONCE


def serve(
    bus: Bus,
    address: str,
    handler: Handler,
    *,
    concurrency: int = 64,
    principal: str | None = None,
    retry: Backoff | None = None,
) -> Service:
    """Listen at an address and answer each message with `handler`, while the result is entered.

        async with serve(bus, "solver", solve):
            answer = await bus.request(envelope)

    Messages of one source and key are handled one after the other. One-way messages are handled too, and what the
    handler returns for them goes nowhere. A handler is cancelled when its requester is, or waits no longer. Leaving
    cancels the handlers that still run: their requesters get Closed; one-way messages, and requests that are
    `at_least_once`, are delivered again where there is another listener.

    Args:
        handler: an exception that it raises goes to the requester: a MasError as it is, others as RemoteError.
        concurrency: messages handled at the same time, at most; more wait at their senders.
        principal: who reads and answers; None: the address.
        retry: when to try a one-way message again whose handler raised; None: never, it counts as handled, and the
            error as an answer that was not awaited.

    Raises:
        ValueError: concurrency is below 1.
        On entry: as `Bus.subscribe`.
    """
    return Service(bus, address, handler, concurrency=concurrency, principal=principal, retry=retry)
