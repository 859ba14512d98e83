"""The thread that writes a journal: whatever came together is one transaction, so that many messages share one sync."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from mas.core.errors import JournalError

Step = tuple[str, tuple[Any, ...]]
"""An SQL statement and its parameters."""


class Writer:
    """Writes steps in the order in which they were added. `add` and `wait` are called from one event loop.

    Args:
        connection: its transactions belong to this thread until `close` returns.
        tidy: called in the thread after each transaction, with the number of steps in it.
    """

    def __init__(self, connection: sqlite3.Connection, name: str, tidy: Callable[[int], None]) -> None:
        self.added = 0
        self._name = name
        self._connection = connection
        self._tidy = tidy
        self._steps: list[Step] = []
        self._written = 0
        self._failure: Exception | None = None
        self._waiting: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"journal {name}", daemon=True)
        self._thread.start()

    @property
    def backlog(self) -> int:
        """Steps that are added and not yet written."""
        return self.added - self._written

    def add(self, *steps: Step) -> None:
        """Have steps written soon, in one transaction.

        After a failure or `close` nothing is written any more, and `check` says so.
        """
        if self._failure is not None or self._is_closing:
            return
        with self._changed:
            if not self._steps:
                self._changed.notify()
            self.added += len(steps)
            self._steps.extend(steps)

    async def wait(self, number: int) -> None:
        """Until the first `number` steps are written.

        Raises:
            JournalError: the disk has failed.
        """
        if self._written < number:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            with self._changed:
                if self._failure is None and self._written < number:
                    self._waiting.append((number, loop, future))
                else:
                    future.set_result(None)
            await future
        if self._failure is not None:
            self.check()

    def close(self) -> None:
        """Write what is left and end the thread; safe to call twice.

        Raises:
            JournalError: the disk has failed.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._error(self._failure)

    def check(self) -> None:
        """Refuse further writes once the disk has failed or the journal is closed.

        Raises:
            JournalError: the disk has failed, or `close` was called.
        """
        if self._failure is not None:
            raise self._error(self._failure)
        if self._is_closing:
            raise JournalError(f"the journal {self._name} is closed: close it after its bus")

    def _error(self, failure: Exception) -> JournalError:
        error = JournalError(f"the journal {self._name} cannot be written: {failure}")
        error.__cause__ = failure
        return error

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._steps and not self._is_closing:
                    self._changed.wait()
                steps, self._steps = self._steps, []
            if not steps:
                return
            try:
                self._write(steps)
            except Exception as failure:  # noqa: BLE001 - any failure is passed to all that wait
                self._failure = failure
            self._wake(len(steps))

    def _write(self, steps: list[Step]) -> None:
        """One transaction. After a failure nothing is written any more: a gap in the record would go unseen."""
        if self._failure is not None:
            return
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        try:
            for sql, parameters in steps:
                execute(sql, parameters)
            execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                execute("ROLLBACK")
            raise
        self._tidy(len(steps))

    def _wake(self, written: int) -> None:
        with self._changed:
            self._written += written
            waiting, self._waiting = self._waiting, []
            futures: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
            for number, loop, future in waiting:
                if self._failure is None and number > self._written:
                    self._waiting.append((number, loop, future))
                else:
                    futures.setdefault(loop, []).append(future)
        for loop, ready in futures.items():
            try:
                loop.call_soon_threadsafe(_settle, ready)
            except RuntimeError:
                continue  # the loop was closed: nothing waits there any more


def _settle(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
