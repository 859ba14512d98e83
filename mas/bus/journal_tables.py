"""The tables of a journal, and reading them.

One row of `record` per message that was accepted, in the order of acceptance; `seen` holds the ids of messages that
are not accepted again. The other tables are those of a process on a broker, see `mas.bus.mqtt.journal`: who it is
(`owner`), the tickets of what it sent (`post`), what of others it has done (`taken`), and whom it knew (`peer`); and
those of plays (`PLAYS_SCHEMA`), see `mas.bus.plays`.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec

from mas.bus.wire import UnknownKind, decode, read_plain
from mas.core.errors import JournalError, Malformed
from mas.core.messages import Envelope

JOURNAL_NAME = "bus.sqlite"
"""The journal's file in a run directory."""

VERSION = 2
Way = Literal["one_way", "request", "answer", "sent", "asked"]
"""Received one way, as a request, or as its answer; sent to other processes one way, or as a request."""

SCHEMA = """
CREATE TABLE record (
    seq INTEGER PRIMARY KEY,
    id TEXT NOT NULL,
    way TEXT NOT NULL,
    promised INTEGER NOT NULL,
    frame BLOB NOT NULL,
    at REAL NOT NULL,
    deadline REAL,
    state TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    tries INTEGER NOT NULL DEFAULT 0,
    cause TEXT NOT NULL DEFAULT '',
    effect BLOB,
    ended INTEGER,
    ended_at REAL
);
CREATE INDEX record_id ON record (id);
CREATE INDEX record_live ON record (state) WHERE state IN ('open', 'dead', 'expired');
CREATE TABLE seen (target TEXT, id TEXT, seq INTEGER NOT NULL, PRIMARY KEY (target, id)) WITHOUT ROWID;
CREATE INDEX seen_seq ON seen (seq);
CREATE TABLE lost (what TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO lost VALUES ('records', 0), ('dead letters', 0);
"""

SHARED_SCHEMA = """
CREATE TABLE owner (principal TEXT, space TEXT, process TEXT, client TEXT, life INTEGER NOT NULL);
CREATE TABLE post (seq INTEGER PRIMARY KEY, target TEXT NOT NULL, id TEXT NOT NULL, ticket TEXT);
CREATE TRIGGER post_dropped AFTER DELETE ON record BEGIN DELETE FROM post WHERE seq = old.seq; END;
CREATE TABLE taken (
    principal TEXT, process TEXT, ticket TEXT, attempt INTEGER NOT NULL, reply BLOB, seq INTEGER NOT NULL,
    PRIMARY KEY (principal, process, ticket)
) WITHOUT ROWID;
CREATE INDEX taken_seq ON taken (seq);
CREATE TABLE peer (principal TEXT, process TEXT, card BLOB NOT NULL, PRIMARY KEY (principal, process)) WITHOUT ROWID;
"""
"""What the buses of several processes need."""

PLAYS_SCHEMA = """
CREATE TABLE IF NOT EXISTS play (
    id TEXT PRIMARY KEY,
    team TEXT NOT NULL,
    episode TEXT NOT NULL,
    frame BLOB NOT NULL,
    at REAL NOT NULL,
    clock_s REAL NOT NULL DEFAULT 0,
    lives INTEGER NOT NULL DEFAULT 0,
    ended INTEGER,
    failure TEXT,
    UNIQUE (team, episode)
);
CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, play TEXT NOT NULL, frame BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS event_play ON event (play);
CREATE TABLE IF NOT EXISTS reply (question TEXT PRIMARY KEY, text TEXT NOT NULL);
"""
"""Made where they are missing: a journal need not have any plays."""


class State(StrEnum):
    """What became of a message."""

    OPEN = "open"
    """Accepted; neither of the others yet."""
    PROCESSED = "processed"
    """One way: its receiver is done with it."""
    ANSWERED = "answered"
    """A request that got its answer, and the answer itself."""
    FAILED = "failed"
    """Answered with an error, cancelled, or left without an answer; the cause says which."""
    EXPIRED = "expired"
    """A dead letter whose deadline passed."""
    DEAD = "dead"
    """A dead letter for any other cause."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a journal.

    Attributes:
        seq: position in the order of acceptance, from 1.
        frame: the envelope as bytes, as it was accepted.
        at: when it was accepted; ended_at: when it got its state, None while open; seconds since 1970.
        deadline: seconds since 1970, None: never.
        attempt: of its latest delivery, from 1; tries: attempts to handle it that failed.
        cause: why it failed, expired or died.
        effect: what its receiver left with `done`; of a request sent to another process: its outcome, as a frame.
        ended: the position of the last message that was accepted before it got its state, None while open.
        promised: while it is open, the next bus that opens the journal delivers it.
    """

    seq: int
    id: str
    way: Way
    promised: bool
    frame: bytes
    at: float
    deadline: float | None
    state: State
    attempt: int
    tries: int
    cause: str
    effect: bytes | None
    ended: int | None
    ended_at: float | None

    @property
    def envelope(self) -> Envelope:
        """The message as it was accepted.

        Raises:
            Malformed: its payload's class is unknown here.
        """
        return decode(self.frame)

    @property
    def damage(self) -> str | None:
        """Why its frame can be no message, whatever classes are known here; None: it may be one."""
        try:
            read_plain(self.frame)
            decode(self.frame)
        except UnknownKind:
            return None
        except Malformed as error:
            return str(error)
        return None


COLUMNS = ", ".join(Record.__struct_fields__)


def connect(path: Path, *, is_writable: bool = False) -> sqlite3.Connection:
    """Open a journal that exists.

    Raises:
        JournalError: there is none, or it is another kind of file or of another version.
    """
    if not path.is_file():
        raise JournalError(
            f"there is no journal {path}; `mas run --journal FILE` makes one, in Python Journal.open(path)"
        )
    mode = "rw" if is_writable else "ro"
    with failing(path, "read"):
        connection = sqlite3.connect(
            f"file:{quote(str(path))}?mode={mode}",
            uri=True,
            timeout=10.0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            check_version(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse a file that is no journal, or of another version.

    Raises:
        JournalError: says which version it has.
    """
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise JournalError(f"{path} is no journal of version {VERSION}: it says {version}. Name another file.")


def owner_of(connection: sqlite3.Connection) -> tuple[str, str, str, str, int] | None:
    """Principal, space, process, client id and number of lives of the bus over MQTT that has a journal; None: no such
    bus has it."""
    found: tuple[str, str, str, str, int] | None = connection.execute("SELECT * FROM owner").fetchone()
    return found


@contextmanager
def failing(path: Path, verb: str) -> Iterator[None]:
    """Say which journal it was that SQLite could not use."""
    try:
        yield
    except sqlite3.Error as error:
        raise JournalError(f"the journal {path} cannot be {verb}: {error}") from error


def journal_at(path: Path) -> Path:
    """The journal that a user means by a path: the file, or the one in a directory."""
    return path / JOURNAL_NAME if path.is_dir() else path


def read_records(path: Path, states: tuple[State, ...] = tuple(State)) -> list[Record]:
    """The messages of a journal in these states, in order. May be called while a bus writes it.

    Raises:
        JournalError: there is no such journal, or it cannot be read.
    """
    with closing(connect(path)) as connection, failing(path, "read"):
        return select(connection, states)


def select(connection: sqlite3.Connection, states: tuple[State, ...]) -> list[Record]:
    """The messages in these states, in order.

    Raises:
        JournalError: a row holds something else than a message.
    """
    marks = ", ".join("?" * len(states))
    rows = connection.execute(f"SELECT {COLUMNS} FROM record WHERE state IN ({marks}) ORDER BY seq", states)
    return [_record(row) for row in rows]


def _record(row: tuple[object, ...]) -> Record:
    try:
        return msgspec.convert(dict(zip(Record.__struct_fields__, row, strict=True)), Record, strict=False)
    except msgspec.ValidationError as error:
        raise JournalError(
            f"message {row[0]} of the journal is damaged ({error}): restore the file from a copy, or delete that row "
            "of its table `record`"
        ) from error


def lost(connection: sqlite3.Connection, what: Literal["records", "dead letters"]) -> int:
    """How many of them were dropped to keep the file small."""
    number: int = connection.execute("SELECT number FROM lost WHERE what = ?", (what,)).fetchone()[0]
    return number


def redrive(path: Path, message_id: str | None = None) -> int:
    """Mark the dead letters with this id, None: all, for delivery by the next bus that opens the journal; how many.

    Raises:
        JournalError: there is no such journal, or it cannot be written.
    """
    with closing(connect(path, is_writable=True)) as connection, failing(path, "written"):
        chosen = "" if message_id is None else " AND id = ?"
        cursor = connection.execute(
            "UPDATE record SET state = 'open', promised = 1, tries = 0, cause = '', deadline = NULL, ended = NULL, "
            f"ended_at = NULL WHERE state IN ('dead', 'expired'){chosen}",
            () if message_id is None else (message_id,),
        )
        return cursor.rowcount
