"""The object that a worker serves: made by its factory, called by name, its errors turned into text.

Both implementations use it inside the worker's process. An error never leaves as an exception object: what travels is
the class's name, the message and the traceback.
"""

import asyncio
import inspect
import platform
import traceback
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from mas.cluster.records import Done, FailedCall, Outcome
from mas.core.errors import ClusterError
from mas.core.version import VERSION

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
        """Call a method; cancelled only by whoever awaits this."""
        try:
            function = self._method(method)
            if inspect.iscoroutinefunction(function):
                objects = await self._fetched(fetches)
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

    async def _fetched(self, fetches: Sequence[Fetch]) -> list[bytes]:
        return [await asyncio.to_thread(fetch) for fetch in fetches]

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
