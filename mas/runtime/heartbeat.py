"""Heartbeats of the server of an agent, while it works on an answer.

A requester that wants them says so in its `Ask` (`beat_s`) and listens at its own address. The server publishes a
one-way, best-effort `Beat` there at once and then every `beat_s` seconds, with the request's id as correlation, private
to the requester. Nothing of this depends on both being in one process.
"""

import asyncio
import itertools
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

from mas.bus.serve import Handler
from mas.core.bus import Bus
from mas.core.errors import BusError, Expired
from mas.core.messages import Beat, Delivery, Envelope, Payload
from mas.runtime.payloads import Ask

T = TypeVar("T")
BEATS_PER_SILENCE = 3
"""Beats in the longest silence allowed: one or two may be lost."""


class Heartbeat:
    """The requester's side: waits for answers as long as beats come.

    Args:
        is_vouched: the bus says who sent a beat, and an agent sends as the principal of its address: no other beat
            counts, whatever source it names. False: the agents are in this process, and the source is believed.
    """

    def __init__(self, *, is_vouched: bool = False) -> None:
        self._is_vouched = is_vouched
        self._watched: dict[str, tuple[str, asyncio.Timeout, float]] = {}

    async def handle(self, envelope: Envelope) -> None:
        """Take a beat; beats for what is not awaited, or from elsewhere, are ignored."""
        target, limit, idle_s = self._watched.get(envelope.correlation or "", ("", None, 0.0))
        sender = envelope.principal if self._is_vouched else envelope.source
        if limit is not None and sender == target and not limit.expired():
            limit.reschedule(asyncio.get_running_loop().time() + idle_s)

    async def watch(self, request: Envelope, idle_s: float, answer: Awaitable[T]) -> T:
        """The answer to a request.

        Raises:
            Expired: for `idle_s` seconds there was neither a beat nor the answer.
        """
        limit = asyncio.timeout(idle_s)
        try:
            async with limit:
                self._watched[request.id] = (request.target, limit, idle_s)
                return await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise Expired(f"{request.target!r} sent no heartbeat for {idle_s:g} s") from None
        finally:
            self._watched.pop(request.id, None)


def with_heartbeat(bus: Bus, handler: Handler) -> Handler:
    """The server's side: the handler, with beats while it works on an `Ask` that wants them."""

    async def handle(envelope: Envelope) -> Payload | None:
        payload = envelope.payload
        if not isinstance(payload, Ask) or payload.beat_s is None:
            return await handler(envelope)
        beats = asyncio.create_task(_beat(bus, envelope, payload.beat_s), name=f"beats for {envelope.id}")
        try:
            return await handler(envelope)
        finally:
            beats.cancel()
            await asyncio.wait([beats])

    return handle


async def _beat(bus: Bus, request: Envelope, beat_s: float) -> None:
    for number in itertools.count():
        beat = Envelope(
            id=f"{request.id}/beat/{number}",
            kind=Beat.kind,
            source=request.target,
            target=request.source,
            payload=Beat(number=number),
            correlation=request.id,
            delivery=Delivery.BEST_EFFORT,
            visibility=frozenset((request.principal or request.source,)),
            episode=request.episode,
            turn=request.turn,
        )
        with suppress(BusError):  # a lost beat is made up for by the next
            await bus.publish(beat, wait=False)
        await asyncio.sleep(beat_s)
