"""Ctrl-C on a team at work: the first lets the team turns that run come to their end, the second ends them."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from mas.runtime.team import TeamRuntime

_FIRST = "stopping: the team turns that run are played to their end; Ctrl-C again stops at once"


@contextmanager
def drains_on_interrupt(runtime: TeamRuntime) -> Iterator[None]:
    """While this is entered, Ctrl-C drains the runtime and a second one cancels it.

    Where a loop cannot catch signals, in a thread that is not the main one (`run_blocking` in a notebook) or on
    Windows, this changes nothing: Ctrl-C stops at once.
    """
    loop = asyncio.get_running_loop()
    stopping: set[asyncio.Task[None]] = set()

    def on_interrupt() -> None:
        if runtime.is_draining:
            stopping.add(loop.create_task(runtime.cancel(), name="cancel"))
        else:
            print(_FIRST, file=sys.stderr, flush=True)
            stopping.add(loop.create_task(runtime.drain(), name="drain"))

    try:
        loop.add_signal_handler(signal.SIGINT, on_interrupt)
    except (NotImplementedError, RuntimeError):  # on Windows; outside the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in stopping:
            task.cancel()
