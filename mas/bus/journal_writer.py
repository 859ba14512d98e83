"""The thread that writes a journal, its lock and its durability.

The file is open in one process at a time, of a version that is known, and cleared of what is lost. Whatever came
together is one transaction, so that many messages share one sync. `AfterWrite` makes calls that must not happen before
what was written is on the disk.
"""

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

from mas.bus.journal_tables import PLAYS_SCHEMA, SCHEMA, SHARED_SCHEMA, VERSION, check_version
from mas.core.errors import JournalError

Durability = Literal["async", "group"]


def check_options(durability: str, **least_zero: float | None) -> None:
    """Raises ValueError: a number is negative, or an unknown durability."""
    if durability not in ("async", "group"):
        raise ValueError(f"durability is {durability!r}; possible: 'async', 'group'; for none leave the journal out")
    for name, number in least_zero.items():
        if number is not None and not number >= 0:
            raise ValueError(f"{name} is {number}; it must be 0 or more")


def take_lock(path: Path) -> int:
    """One process per journal; the system gives the lock back however the process ends."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise JournalError(f"the journal {path} cannot be opened: {error.strerror}. Choose another path.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise JournalError(f"the journal {path} is open already, here or in another process; close it there") from None
    return lock


def opened(path: Path, durability: Durability) -> sqlite3.Connection:
    """Open the file, or make it if there is none, and delete what only an ended process could use.

    Raises:
        JournalError: it is no journal. OSError, sqlite3.Error: it cannot be used.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # payloads may be private
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(f"BEGIN; {SCHEMA} {SHARED_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
        check_version(connection, path)
        connection.execute(f"PRAGMA synchronous = {'FULL' if durability == 'group' else 'NORMAL'}")
        connection.execute("PRAGMA journal_size_limit = 4194304")
        connection.executescript(PLAYS_SCHEMA)
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(
            "DELETE FROM seen WHERE seq IN (SELECT seq FROM record WHERE state = 'open' AND NOT promised)"
        )
        connection.execute(
            "UPDATE record SET state = 'failed', cause = 'its process ended first', ended_at = ?, "
            "ended = (SELECT max(seq) FROM record) WHERE state = 'open' AND NOT promised",
            (time.time(),),
        )
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


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
        self._name, self._connection, self._tidy = name, connection, tidy
        self._steps: list[Step] = []
        self._written = 0
        self._failure: Exception | None = None
        self._waiting: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"journal {name}", daemon=True)
        self._thread.start()

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


class AfterWrite:
    """Makes calls in the order in which they were given, each when what was written before it is safe.

    Args:
        safe: waits for that; None: there is no journal, and everything is called at once.
        failed: told the error when the disk has failed; nothing is called from then on.
    """

    def __init__(
        self, safe: Callable[[], Awaitable[None]] | None, *, failed: Callable[[JournalError], object], name: str
    ) -> None:
        self._safe, self._failed, self._name = safe, failed, name
        self._calls: list[Callable[[], object]] = []
        self._waiting: asyncio.Task[None] | None = None

    def call(self, then: Callable[[], object]) -> None:
        """Call it when it is time; it must not raise."""
        if self._safe is None:
            then()
            return
        self._calls.append(then)
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._safe), name=self._name)

    async def idle(self) -> None:
        """Wait until all calls were made, or none will be any more."""
        if self._waiting is not None:
            await asyncio.wait([self._waiting])

    async def _run(self, safe: Callable[[], Awaitable[None]]) -> None:
        try:
            while self._calls:
                calls, self._calls = self._calls, []
                await safe()
                for then in calls:
                    then()
        except JournalError as error:
            self._calls.clear()
            self._failed(error)
        finally:
            self._waiting = None
