"""Coroutines for callers that wait: scripts, and notebooks, where an event loop runs already."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from threading import Thread
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, also where an event loop runs in this thread.

    Without a running loop as `asyncio.run`. In a running one (a notebook's cell) the coroutine gets a loop and a thread
    of its own, with this thread's context variables, and the running loop waits; an interrupt cancels it and ends when
    it has ended. In a coroutine of your own, await the asynchronous functions instead.

    Raises:
        What the coroutine raises. KeyboardInterrupt: the wait was interrupted.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _Aside(work).result()


class _Aside(Generic[T]):
    """One coroutine in a thread of its own."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._outcome: list[T] = []
        self._error: BaseException | None = None
        self._stop: Callable[[], object] | None = None

    def result(self) -> T:
        thread = Thread(target=copy_context().run, args=(self._run,), name="mas")
        thread.start()
        try:
            thread.join()
        except BaseException:
            if self._stop is not None:
                self._stop()
            thread.join()
            raise
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def _run(self) -> None:
        try:
            self._outcome.append(asyncio.run(self._stoppable()))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            self._error = error

    async def _stoppable(self) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._stop = lambda: loop.call_soon_threadsafe(task.cancel)
        return await self._work
