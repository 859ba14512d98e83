"""The plays of a journal: what a runtime records of each episode, as bytes, in order.

They lie in the journal's file beside its messages and are written by the same thread, so that both share their syncs.
Leaves out on purpose: what the bytes mean (`mas.runtime.replay_log`).
"""

import time
from contextlib import closing

import msgspec

from mas.bus.journal import Journal
from mas.bus.journal_tables import connect, failing

_DROP_EVENTS = "DELETE FROM event WHERE play IN (SELECT id FROM play WHERE ended <= (SELECT max(seq) FROM event) - ?)"
_DROP_PLAYS = "DELETE FROM play WHERE ended IS NOT NULL AND id NOT IN (SELECT play FROM event)"
_DROP_REPLIES = "DELETE FROM reply WHERE rowid <= (SELECT max(rowid) FROM reply) - ?"


class PlayRow(msgspec.Struct, frozen=True):
    """One play.

    Attributes:
        id: random, made when it began, so that no two plays of any journal share one.
        frame: how it began.
        at: when it began, seconds since 1970; clock_s: how long it was played, all lives together, as far as known.
        lives: how often a process has begun to play it.
        ended: position of its last event, None while it can be resumed; failure: what its last life failed with.
    """

    id: str
    team: str
    episode: str
    frame: bytes
    at: float
    clock_s: float
    lives: int
    ended: int | None
    failure: str | None


_COLUMNS = ", ".join(PlayRow.__struct_fields__)


class Plays:
    """The plays of an open journal."""

    def __init__(self, journal: Journal) -> None:
        self.path = journal.path
        self._journal = journal
        self._keep = journal.keep

    def rows(self) -> list[PlayRow]:
        """All plays on the disk, the oldest first.

        Raises:
            JournalError: the file cannot be read.
        """
        with closing(connect(self.path)) as connection, failing(self.path, "read"):
            rows = connection.execute(f"SELECT {_COLUMNS} FROM play ORDER BY at, rowid").fetchall()
        return [PlayRow(*row) for row in rows]

    def row(self, team: str, episode: str) -> PlayRow | None:
        """The play of an episode on the disk, None: there is none.

        Raises:
            JournalError: the file cannot be read.
        """
        with closing(connect(self.path)) as connection, failing(self.path, "read"):
            query = f"SELECT {_COLUMNS} FROM play WHERE team = ? AND episode = ?"
            row = connection.execute(query, (team, episode)).fetchone()
        return None if row is None else PlayRow(*row)

    def events(self, play: str) -> list[bytes]:
        """What a play has written to the disk, in order.

        Raises:
            JournalError: the file cannot be read.
        """
        with closing(connect(self.path)) as connection, failing(self.path, "read"):
            rows = connection.execute("SELECT frame FROM event WHERE play = ? ORDER BY seq", (play,)).fetchall()
        return [frame for (frame,) in rows]

    def replies(self) -> dict[str, str]:
        """Question -> the answer that a person gave."""
        with closing(connect(self.path)) as connection, failing(self.path, "read"):
            return dict(connection.execute("SELECT question, text FROM reply").fetchall())

    def begin(self, play: str, team: str, episode: str, frame: bytes) -> None:
        self._journal.write(
            (
                "INSERT INTO play (id, team, episode, frame, at) VALUES (?, ?, ?, ?, ?)",
                (play, team, episode, frame, time.time()),
            )
        )

    def live(self, play: str) -> None:
        """A process begins to play it, or resumes it."""
        self._journal.write(("UPDATE play SET lives = lives + 1, failure = NULL WHERE id = ?", (play,)))

    def add(self, play: str, frame: bytes) -> None:
        self._journal.write(("INSERT INTO event (play, frame) VALUES (?, ?)", (play, frame)))

    def tick(self, play: str, clock_s: float) -> None:
        """It has been played for so long."""
        self._journal.write(("UPDATE play SET clock_s = max(clock_s, ?) WHERE id = ?", (clock_s, play)))

    def fail(self, play: str, failure: str) -> None:
        """Its life has failed; another may resume it."""
        self._journal.write(("UPDATE play SET failure = ? WHERE id = ?", (failure, play)))

    def end(self, play: str) -> None:
        """It is over. Plays that were over long ago are dropped: those whose last event is behind the latest `keep`."""
        self._journal.write(("UPDATE play SET ended = (SELECT max(seq) FROM event) WHERE id = ?", (play,)))
        if self._keep is not None:
            self._journal.write((_DROP_EVENTS, (self._keep,)), (_DROP_PLAYS, ()), (_DROP_REPLIES, (self._keep,)))

    def forget(self, play: str) -> None:
        """Drop it, over or not."""
        self._journal.write(("DELETE FROM event WHERE play = ?", (play,)), ("DELETE FROM play WHERE id = ?", (play,)))

    def reply(self, question: str, text: str) -> None:
        self._journal.write(("INSERT OR REPLACE INTO reply (question, text) VALUES (?, ?)", (question, text)))

    async def is_safe(self) -> None:
        """Wait until all that was written so far survives; see `Journal.is_safe`.

        Raises:
            JournalError: the journal is closed, or the disk has failed.
        """
        self._journal.check()
        await self._journal.is_safe()

    async def flush(self) -> None:
        """Wait until all that was written so far can be read.

        Raises:
            JournalError: the disk has failed.
        """
        await self._journal.flush()
