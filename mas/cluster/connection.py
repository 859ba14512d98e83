"""The driver's end of a stream to one worker: requests, their replies, and the end of both."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import msgspec

from mas.cluster.frames import (
    REPLIES,
    CallRequest,
    CancelRequest,
    CorruptFrame,
    PingRequest,
    Request,
    StartRequest,
    StopRequest,
    read_frame,
    write_frame,
)
from mas.cluster.records import FailedCall, HeartbeatReply, Outcome, WorkerSpec
from mas.core.errors import WorkerLost

_CLOSED = "its connection is closed"
_CLOSE_S = 1.0


class WorkerConnection:
    """Requests side by side. Those of `WorkerLink` raise WorkerLost when the connection has ended.

    Args:
        name: of the worker.
        limit: the largest answer in bytes.
        explain: is called once when the connection has ended, with what was wrong with the last frame (empty:
            nothing). It sees to it that the process ends, says how it did, and tells its handle.
    """

    def __init__(
        self,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        limit: int,
        explain: Callable[[str], Awaitable[str]],
    ) -> None:
        self._writer, self._limit, self._explain = writer, limit, explain
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._next = 0
        self._reading = asyncio.create_task(self._read(reader), name=f"cluster-{name}-replies")

    async def start(self, spec: WorkerSpec, objects: str = "") -> Outcome:
        """Have the object made. `objects`: the directory of their files, where they are files."""
        return await self._ask(
            StartRequest(
                id=self._number(),
                factory=spec.factory,
                arguments=spec.arguments,
                objects=objects,
                limit=self._limit,
                version=spec.version,
            )
        )

    async def call(self, method: str, payload: bytes, objects: Sequence[str]) -> Outcome:
        """Call a method with objects by their names. If this call is cancelled, the worker cancels the method."""
        request = CallRequest(id=self._number(), method=method, payload=payload, objects=[*objects])
        try:
            return await self._ask(request)
        except asyncio.CancelledError:
            self._cancel(request.id)
            raise

    async def ping(self) -> HeartbeatReply:
        """Ask for a sign of life."""
        outcome = await self._ask(PingRequest(id=self._number()))
        if isinstance(outcome, FailedCall):
            raise WorkerLost(f"a heartbeat failed: {outcome.text}")
        try:
            return msgspec.msgpack.decode(outcome.payload, type=HeartbeatReply)
        except msgspec.DecodeError as error:
            raise WorkerLost(f"it sent a heartbeat that is none: {error}") from error

    async def stop(self) -> None:
        """Have the worker close its object."""
        await self._ask(StopRequest(id=self._number()))

    async def close(self) -> None:
        """End it from this side, whatever the other one does."""
        self._reading.cancel()
        self._writer.transport.abort()
        await self.closed()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()
        self._fail(_CLOSED)

    def abort(self) -> None:
        """End it as if it had broken: `explain` is called."""
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Wait until it has ended and `explain` has answered."""
        await asyncio.wait({self._reading})

    async def _ask(self, request: Request) -> Outcome:
        if self._reading.done():
            raise WorkerLost(_CLOSED)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = answer
        try:
            await write_frame(self._writer, request)
            return await answer
        except OSError as error:
            await self.closed()  # it says why
            raise WorkerLost(_CLOSED) from error
        finally:
            self._waiting.pop(request.id, None)

    def _cancel(self, number: int) -> None:
        """Tell the worker, without waiting until it has read that."""
        if not self._writer.is_closing():
            body = msgspec.msgpack.encode(CancelRequest(id=number))
            self._writer.write(len(body).to_bytes(4) + body)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Hand replies to those who wait, until the connection ends."""
        fault = ""
        try:
            while True:
                reply = await read_frame(reader, REPLIES, self._limit)
                if not 0 <= reply.id < self._next:
                    raise CorruptFrame(f"a reply to request {reply.id}, which was never sent")
                answer = self._waiting.get(reply.id)  # None: cancelled
                if answer is not None and not answer.done():
                    answer.set_result(reply.outcome)
        except CorruptFrame as error:
            fault = f"it sent {error}; it was killed. "
        except EOFError:
            pass
        reason = _CLOSED
        try:
            reason = fault + await self._explain(fault)
        finally:
            self._writer.close()
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(WorkerLost(reason))

    def _number(self) -> int:
        self._next += 1
        return self._next - 1
