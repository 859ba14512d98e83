"""The process of a local worker: `python -m mas.cluster.worker FD PARENT`, started by `mas.cluster.local`.

It serves one object over the socket FD. When the driver closes that socket, however it ended, the process ends with all
that it has started. On Linux the kernel also kills it when PARENT dies; what it had started then is left to the guard.
"""

import asyncio
import ctypes
import os
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, Never

import msgspec

from mas.cluster.environment import resident_bytes
from mas.cluster.frames import (
    READ_AHEAD,
    CallRequest,
    CancelRequest,
    CorruptFrame,
    PingRequest,
    Reply,
    Request,
    StartRequest,
    StopRequest,
    read_request,
    write_frame,
)
from mas.cluster.records import Done, HeartbeatReply, Outcome
from mas.cluster.worker_object import WorkerObject

_FIRST_LIMIT = 2047 << 20
"""Bytes of the first frame, before it has said how much others may have."""
_PR_SET_PDEATHSIG = 1
_BROKEN = 70
"""Exit code after a frame that is none: EX_SOFTWARE."""


class Server:
    """Serves requests of one connection until it is told to stop, or the connection ends.

    Args:
        fetch: reads an object by its name; None: it is a file in the directory that the first request names.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        fetch: Callable[[str], bytes] | None = None,
    ) -> None:
        self._reader, self._writer = reader, writer
        self._limit = _FIRST_LIMIT
        self._objects = Path()
        self._fetch = fetch or self._read_file
        self._object = WorkerObject(0)
        self._calls: dict[int, asyncio.Task[None]] = {}

    async def serve(self) -> None:
        """Serve; returns after a StopRequest.

        Raises:
            EOFError: the driver is gone. CorruptFrame: what it sent is no request.
        """
        while not isinstance(request := await read_request(self._reader, self._limit), StopRequest):
            await self._take(request)
        for task in self._calls.values():
            task.cancel()
        await self._object.close()
        await self._reply(request.id, Done(b""))

    async def _take(self, request: Request) -> None:
        match request:
            case StartRequest():
                self._limit, self._objects = request.limit, Path(request.objects)
                self._object = WorkerObject(request.limit)
                self._begin(request.id, self._make(request))
            case CallRequest():
                self._begin(request.id, self._call(request))
            case CancelRequest():
                if request.id in self._calls:
                    self._calls[request.id].cancel()
            case PingRequest():
                heartbeat = msgspec.msgpack.encode(HeartbeatReply(rss_bytes=resident_bytes()))
                await self._reply(request.id, Done(heartbeat))
            case StopRequest():
                pass

    def _begin(self, number: int, work: Coroutine[Any, Any, None]) -> None:
        task = self._calls[number] = asyncio.create_task(work, name=f"call-{number}")
        task.add_done_callback(lambda _: self._calls.pop(number, None))

    async def _make(self, request: StartRequest) -> None:
        await self._reply(request.id, await self._object.make(request.factory, request.arguments, request.version))

    async def _call(self, request: CallRequest) -> None:
        fetches = [partial(self._fetch, name) for name in request.objects]
        await self._reply(request.id, await self._object.invoke(request.method, request.payload, fetches))

    def _read_file(self, name: str) -> bytes:
        return (self._objects / name).read_bytes()

    async def _reply(self, number: int, outcome: Outcome) -> None:
        try:
            await write_frame(self._writer, Reply(id=number, outcome=outcome))
        except OSError as error:
            raise EOFError("the connection broke") from error


async def serve(server: Server) -> None:
    """Serve until a StopRequest; any other end of the connection ends the process and its group."""
    try:
        await server.serve()
    except CorruptFrame as error:
        print(f"the driver sent {error}: this worker ends", file=sys.stderr, flush=True)
        os._exit(_BROKEN)
    except EOFError:
        print("the driver is gone: this worker ends", file=sys.stderr, flush=True)
        _end()


def _end() -> Never:
    """Kill this process and all of its group, of which it is the leader."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(_BROKEN)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        _end()


def main() -> None:
    """Serve what the command line names."""
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(descriptor, False)
    die_with(parent)
    with socket.socket(fileno=descriptor) as connection:
        asyncio.run(_serve_socket(connection))


async def _serve_socket(connection: socket.socket) -> None:
    await serve(Server(*await asyncio.open_unix_connection(sock=connection, limit=READ_AHEAD)))


if __name__ == "__main__":
    main()
