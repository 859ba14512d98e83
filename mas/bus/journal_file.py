"""Opening the file of a journal: one process at a time, a file of a version that is known, cleared of what is lost."""

import fcntl
import os
import sqlite3
import time
from pathlib import Path
from typing import Literal

from mas.bus.record import PLAYS_SCHEMA, SCHEMA, SHARED_SCHEMA, VERSION, check_version
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
    """The file, made if there is none, brought to this version, and rid of what died with its process.

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
        if check_version(connection, path) < VERSION:
            connection.executescript(f"BEGIN; {SHARED_SCHEMA} PRAGMA user_version = {VERSION}; COMMIT;")
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
