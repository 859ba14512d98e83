"""The process of a local worker: `python -m mas.cluster.worker FD PARENT`, started by `mas.cluster.local`.

It serves one object over the socket FD: made by its factory, called by name. An error never leaves as an exception
object: what travels is the class's name, the message and the traceback. When the driver closes that socket, however it
ended, the process ends with all that it has started. On Linux the kernel also kills it when PARENT dies; what it had
started then is left to the guard. A worker under Ray serves its object likewise.
"""

import asyncio
import ctypes
import inspect
import os
import platform
import signal
import socket
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Never, cast

import msgspec

from mas.cluster.environment import resident_bytes
from mas.cluster.frames import (
    READ_AHEAD,
    REQUESTS,
    CallRequest,
    CancelRequest,
    CorruptFrame,
    PingRequest,
    Reply,
    Request,
    StartRequest,
    StopRequest,
    read_frame,
    write_frame,
)
from mas.cluster.records import Done, FailedCall, HeartbeatReply, Outcome
from mas.core.errors import ClusterError
from mas.core.version import VERSION

_FIRST_LIMIT = 2047 << 20
"""Bytes of the first frame, before it has said how much others may have."""
_PR_SET_PDEATHSIG = 1
_BROKEN = 70
"""Exit code after a frame that is none: EX_SOFTWARE."""

_TEXT, _TRACEBACK = 2_000, 20_000
"""Characters that travel."""
Fetch = Callable[[], bytes]
"""Reads one object that a call refers to."""


class WorkerObject:
    """One object. Its factory and its synchronous methods run in one thread, in order; asynchronous ones in the loop.

    Args:
        limit: the largest answer in bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._object: Any = None

    async def make(self, factory: str, arguments: bytes, version: str) -> Outcome:
        """Import the factory and call it, if the driver's mas has the version of the one here."""
        try:
            _check_version(version)
            made = await self._in_thread(lambda: _named(factory)(arguments))
            self._object = await made if inspect.isawaitable(made) else made
        except Exception as error:  # noqa: BLE001 - whatever a factory raises goes to the driver
            return failure(error)
        return Done(b"")

    async def invoke(self, method: str, payload: bytes, fetches: Sequence[Fetch]) -> Outcome:
        """Call a method. Only cancelling this call cancels the method."""
        try:
            function = self._method(method)
            if inspect.iscoroutinefunction(function):
                objects = [await asyncio.to_thread(fetch) for fetch in fetches]
                answer = await cast("Awaitable[Any]", function(payload, *objects))
            else:
                answer = await self._in_thread(lambda: function(payload, *(fetch() for fetch in fetches)))
            return self._checked(method, answer)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return failure(error)  # the method's own
        except Exception as error:  # noqa: BLE001 - whatever a method raises goes to the driver
            return failure(error)

    async def close(self) -> None:
        """Call the object's `close`, if it has one, behind the synchronous methods that wait.

        Raises:
            What `close` raises.
        """
        close = getattr(self._object, "close", None)
        if inspect.iscoroutinefunction(close):
            await close()
        elif callable(close):
            await self._in_thread(close)

    def _method(self, name: str) -> Callable[..., Any]:
        function = None if name.startswith("_") else getattr(self._object, name, None)
        if callable(function):
            return cast("Callable[..., Any]", function)
        public = [word for word in dir(self._object) if not word.startswith("_")]
        raise AttributeError(f"no method {name!r}; a {type(self._object).__name__} has {', '.join(public) or 'none'}")

    def _checked(self, method: str, answer: object) -> Done:
        if not isinstance(answer, bytes):
            raise TypeError(f"{method} returned {type(answer).__name__}; a worker's methods return bytes")
        if len(answer) > self._limit:
            raise ValueError(f"{method} returned {len(answer) >> 20} MiB, over payload_mib={self._limit >> 20}")
        return Done(answer)

    async def _in_thread(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _check_version(driver: str) -> None:
    if driver != VERSION:
        raise ClusterError(
            f"the driver has mas {driver}, and node {platform.node()} has mas {VERSION} in "
            f"{Path(__file__).parents[1]}: install one version on all machines, and give the command again"
        )


def failure(error: BaseException) -> FailedCall:
    """An error as text, of which the end is kept."""
    shown = "".join(traceback.format_exception(error))
    last = "".join(traceback.format_exception_only(error)).strip()
    text = last.partition(": ")[2] or last
    return FailedCall(type(error).__name__, _encodable(text)[-_TEXT:], _encodable(shown)[-_TRACEBACK:])


def _encodable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _named(factory: str) -> Callable[[bytes], Any]:
    module, _, name = factory.partition(":")
    found: Callable[[bytes], Any] = getattr(import_module(module), name)
    return found


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
        while not isinstance(request := await read_frame(self._reader, REQUESTS, self._limit), StopRequest):
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
