"""Coroutines side by side, and the bridges between them and code that blocks.

`together` waits for several coroutines; `run_blocking` runs one for a caller that waits, such as a script or a
notebook; `asynchronous` makes a blocking function one to be awaited.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from threading import Lock, RLock
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
_exclusive = RLock()
_worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mas")
"""Where `asynchronous` functions work."""


def _begin_anew() -> None:
    """A fork has neither the threads of its parent nor what they would release."""
    global _exclusive, _worker
    _exclusive, _worker = RLock(), ThreadPoolExecutor(max_workers=1, thread_name_prefix="mas")


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_anew)


async def together(calls: Iterable[Awaitable[T]], name: str) -> list[T]:
    """All results in order. The first error cancels the other calls, waits for them, and is raised as it is."""
    waiting = list(calls)
    if len(waiting) == 1:
        return [await waiting[0]]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(call if asyncio.iscoroutine(call) else _await(call), name=f"{name}-{index}")
                for index, call in enumerate(waiting)
            ]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


async def finished(executor: Executor, work: Callable[[], T]) -> T:
    """What a function returns that works in a thread, with the caller's context variables. Cancelled, it is waited for
    all the same: what it changes is whole when this ends."""
    job = asyncio.get_running_loop().run_in_executor(executor, copy_context().run, work)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait({job})
        if not job.cancelled():
            job.exception()  # the cancellation is what is raised
        raise


async def _await(call: Awaitable[T]) -> T:
    return await call


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result, also where an event loop runs in this thread.

    Without a running loop as `asyncio.run`. In a running one (a notebook's cell) the coroutine gets a loop and a thread
    of its own, with this thread's context variables, and the running loop waits; an interrupt cancels it and ends when
    it has ended. In a coroutine of your own, await the asynchronous functions instead.

    Raises:
        What the coroutine raises. KeyboardInterrupt: the wait was interrupted. CancelledError: this thread works for
            an `asynchronous` function, which was cancelled.
    """
    stop = _stop.get()
    work = work if stop is None else stop.stoppable(work)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    aside = Stop()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="mas") as thread:  # the coroutine's end is waited for
        job = thread.submit(copy_context().run, asyncio.run, aside.stoppable(work))
        try:
            return job.result()
        except BaseException:
            aside.stop()
            raise


def exclusive(function: Callable[P, T]) -> Callable[P, T]:
    """The same function, of which and of whose like a process runs one at a time; other threads wait for its end.

    A model that is loaded changes what is global in torch for that time: beside it nothing may compute.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        with _exclusive:
            return function(*args, **kwargs)

    return run


def asynchronous(function: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """The same function to be awaited: it works in a thread, the event loop goes on meanwhile. One works at a time, in
    the order of the calls.

    Cancelled, it cancels what the function runs with `run_blocking`, waits for the end of it, and raises
    CancelledError; what the function computes between (a model that is loaded) is finished first.
    """

    @wraps(function)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        stop, context = Stop(), copy_context()
        context.run(_stop.set, stop)
        job = _worker.submit(context.run, partial(function, *args, **kwargs))
        done = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            if not job.cancel():  # it has begun
                stop.stop()
                await asyncio.wait([done])
                if not done.cancelled():
                    done.exception()  # the cancellation is what is raised
            raise

    run.__name__, run.__qualname__ = f"{function.__name__}_async", f"{function.__qualname__}_async"
    run.__doc__ = f"As `{function.__name__}`, to be awaited: the event loop goes on meanwhile; cancelling ends it."
    return run


class Stop:
    """Cancels the coroutines that `run_blocking` runs for one caller: those that run, and those that it would run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cancels: list[Callable[[], object]] = []
        self._is_stopped = False

    def stop(self) -> None:
        """From any thread, as often as wanted."""
        with self._lock:  # a coroutine leaves under it, so that the loops are open here
            self._is_stopped = True
            for cancel in self._cancels:
                cancel()

    async def stoppable(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine until `stop`.

        Raises:
            CancelledError: it was stopped, if before it began, without a step.
        """
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        cancel = partial(loop.call_soon_threadsafe, task.cancel)
        with self._lock:
            self._cancels.append(cancel)
        try:
            if self._is_stopped:
                work.close()
                raise asyncio.CancelledError
            return await work
        finally:
            with self._lock:
                self._cancels.remove(cancel)


_stop: ContextVar[Stop | None] = ContextVar("mas_stop", default=None)
"""Of the `asynchronous` function that this thread works for; None: of none."""
