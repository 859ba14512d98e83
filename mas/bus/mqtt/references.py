"""Payloads by reference: what is too long for the broker goes into a store, and its hash and length travel instead.

    store = BlobStore("file:///shared/payloads", keep_s=86_400.0)
    references = References(codec, store, options=MqttOptions(), clock=bus.now)
    envelope = await references.redeem(await references.stow(envelope))

Where there is no store nothing is put anywhere, and a reference that comes is an error.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import msgspec

from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.frames import Codec, Stored
from mas.bus.mqtt.options import MqttOptions
from mas.core.errors import Closed, Expired, Malformed, NoPayload
from mas.core.messages import Envelope

T = TypeVar("T")
Lane = tuple[str, str, str]
_ENVELOPE = 2_048  # bytes of a frame that are kept for what is not payload


class References:
    """Takes payloads to the store and back. Messages of one source, key and target stay in order.

    Args:
        store: None: there is none.
        clock: seconds that deadlines refer to.
    """

    def __init__(
        self, codec: Codec, store: BlobStore | None, *, options: MqttOptions, clock: Callable[[], float]
    ) -> None:
        self.stored = 0
        self.fetched = 0
        self._codec, self._store, self._options, self._clock = codec, store, options, clock
        self._turns: dict[Lane, tuple[asyncio.Lock, int]] = {}
        self._limits: set[asyncio.Timeout] = set()
        self._is_closed = False

    def close(self) -> None:
        """Wait for the store no more: pending calls raise Closed."""
        self._is_closed = True
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def stow(self, envelope: Envelope, deadline: float | None = None) -> Envelope:
        """The envelope as it is to travel.

        Raises:
            Malformed: the payload cannot travel. NoPayload: it cannot be stored. Expired: not by the deadline. Closed.
        """
        if self._store is None:
            return envelope
        async with self._turn(envelope):
            packed = self._codec.pack(envelope.payload)
            if len(packed) <= min(self._options.inline_bytes, self._codec.max_bytes - _ENVELOPE):
                return envelope
            if len(packed) > self._options.max_stored_bytes:
                raise Malformed(
                    f"message {envelope.id!r}: its payload is {len(packed):,} bytes long, "
                    f"{self._options.max_stored_bytes:,} are allowed (max_stored_bytes)"
                )
            name = await self._timely(envelope, deadline, self._store.put, packed)
            self.stored += 1
            return msgspec.structs.replace(envelope, payload=Stored(sha256=name, size=len(packed)))

    async def redeem(self, envelope: Envelope, deadline: float | None = None) -> Envelope:
        """The envelope with its payload.

        Raises:
            NoPayload: there is no store here, or it has not what was sent. Malformed: what was sent is no payload of
            the envelope's kind. Expired: it did not come by the deadline. Closed.
        """
        if not isinstance(envelope.payload, Stored) and _lane(envelope) not in self._turns:
            return envelope
        async with self._turn(envelope):
            reference = envelope.payload
            if not isinstance(reference, Stored):
                return envelope
            store = self._checked(envelope, reference)
            packed = await self._timely(envelope, deadline, store.get, reference.sha256, reference.size)
            payload = self._codec.unpack(packed)
            if payload.kind != envelope.kind:
                raise Malformed(f"message {envelope.id!r} of kind {envelope.kind!r} refers to a {payload.kind!r}")
            self.fetched += 1
            return msgspec.structs.replace(envelope, payload=payload)

    def _checked(self, envelope: Envelope, reference: Stored) -> BlobStore:
        if self._store is None:
            raise NoPayload(
                f"message {envelope.id!r} holds its payload by reference, and the process that it came to has no "
                "store: give every process of the bus the same one (MqttBus.connect(store=…), --store, MAS_BUS_STORE)"
            )
        if reference.size > self._options.max_stored_bytes:
            raise NoPayload(
                f"message {envelope.id!r}: its payload is {reference.size:,} bytes long, "
                f"{self._options.max_stored_bytes:,} are allowed (max_stored_bytes)"
            )
        return self._store

    async def _timely(
        self, envelope: Envelope, deadline: float | None, call: Callable[..., T], *arguments: str | bytes | int
    ) -> T:
        """What a thread returns; not waited for beyond the deadline, `store_s`, or the end of the bus."""
        left_s = self._options.store_s
        is_due = deadline is not None and deadline - self._clock() < left_s
        if deadline is not None and is_due:
            left_s = max(0.0, deadline - self._clock())
        limit = asyncio.timeout(0.0 if self._is_closed else left_s)
        self._limits.add(limit)
        try:
            async with limit:
                return await asyncio.to_thread(call, *arguments)
        except TimeoutError:
            if self._is_closed:
                raise Closed(f"message {envelope.id!r}: the bus was closed") from None
            if is_due:
                raise Expired(f"message {envelope.id!r}: its payload was not stored or fetched in time") from None
            raise NoPayload(
                f"message {envelope.id!r}: the store did not answer within {left_s:g} s (store_s)"
            ) from None
        finally:
            self._limits.discard(limit)

    @asynccontextmanager
    async def _turn(self, envelope: Envelope) -> AsyncIterator[None]:
        """One after the other within a lane, in the order of asking."""
        lane = _lane(envelope)
        if lane is None:
            yield
            return
        lock, users = self._turns.get(lane, (asyncio.Lock(), 0))
        self._turns[lane] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            users = self._turns[lane][1] - 1
            if users:
                self._turns[lane] = lock, users
            else:
                del self._turns[lane]


def _lane(envelope: Envelope) -> Lane | None:
    return None if envelope.key is None else (envelope.source, envelope.key, envelope.target)
