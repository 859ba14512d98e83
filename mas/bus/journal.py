"""A journal: one SQLite file with every message that a bus accepted, in order, and the outcome of each.

The event loop never waits for the disk: a thread writes (`mas.bus.journal_writer`). The file is bounded: what is over
is dropped beyond `keep` messages. Leaves out on purpose: several writers; one bus has the journal at a time.
"""

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from mas.bus.journal_tables import Record, State, Way, failing, lost, owner_of, select
from mas.bus.journal_writer import Durability, Step, Writer, check_options, opened, take_lock
from mas.core.errors import JournalError
from mas.core.messages import Delivery, Envelope

_ACCEPT = (
    "INSERT INTO record (seq, id, way, promised, frame, at, deadline, state, attempt, ended, ended_at) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_SEE = "INSERT OR REPLACE INTO seen VALUES (?, ?, ?)"
_FORGET = "DELETE FROM seen WHERE target = ? AND id = ?"
_SETTLE = (
    "UPDATE record SET state = ?, cause = ?, tries = ?, effect = ?, ended = ?, ended_at = ? "
    "WHERE seq = ? AND ended IS NULL"
)
_RENEW = (
    "UPDATE record SET state = 'open', attempt = ?, tries = ?, cause = '', ended = NULL, ended_at = NULL, "
    "deadline = CASE WHEN state = 'open' THEN deadline END WHERE seq = ?"
)
_DROP = "DELETE FROM record WHERE seq <= ? AND state NOT IN ('open', 'dead', 'expired')"
_DROP_OLD = "DELETE FROM record WHERE ended_at < ? AND state NOT IN ('open', 'dead', 'expired')"
_DROP_DEAD = (
    "DELETE FROM record WHERE state IN ('dead', 'expired') AND seq <= (SELECT seq FROM record "
    "WHERE state IN ('dead', 'expired') ORDER BY seq DESC LIMIT 1 OFFSET ?)"
)
_DROP_SEEN = "DELETE FROM seen WHERE seq <= (SELECT seq FROM seen ORDER BY seq DESC LIMIT 1 OFFSET ?)"
_DROP_TAKEN = "DELETE FROM taken WHERE seq <= (SELECT seq FROM taken ORDER BY seq DESC LIMIT 1 OFFSET ?)"


class Journal:
    """Made by `Journal.open`; given to a bus. Close it after that bus, or use it as a context manager.

    Attributes:
        connection: for a bus that begins, before it writes anything down; later only the writing thread uses it.
        is_shared: its bus is one process of several (`mas.bus.mqtt.journal`).
        last: the position of the latest message.
    """

    def __init__(
        self,
        path: Path,
        connection: sqlite3.Connection,
        lock: int,
        durability: Durability,
        keep: int | None,
        keep_s: float | None,
        keep_ids: int,
        keep_dead: int,
        backlog: int,
    ) -> None:
        self.path, self.connection, self._lock, self.durability = path, connection, lock, durability
        self.keep, self._keep_s, self._keep_ids, self._keep_dead = keep, keep_s, keep_ids, keep_dead
        self._backlog = backlog
        self.is_shared = False
        self._has_bus = False
        self._is_closed = False
        self._batch: list[Step] | None = None
        self._steps_since = 0
        self.last: int = connection.execute(
            "SELECT max(ifnull((SELECT max(seq) FROM record), 0), ifnull((SELECT max(seq) FROM seen), 0))"
        ).fetchone()[0]
        self._writer = Writer(connection, str(path), self._tidy)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        durability: Durability = "group",
        keep: int | None = 10_000,
        keep_s: float | None = None,
        keep_ids: int = 16_384,
        keep_dead: int = 1_024,
        backlog: int = 10_000,
    ) -> "Journal":
        """Open a journal, or make one.

        Args:
            durability: `group`: a message is accepted once it is on the disk, and messages that come together share
                one sync. `async`: it is written behind; a kill loses what was not written yet, a power cut more.
            keep: messages that are over are dropped behind the latest `keep`; None: all are kept, as replay needs.
            keep_s: those that are over for longer are dropped, too; None: age does not matter.
            keep_ids: ids that are not accepted again; of `BusLimits.remembered` and this the smaller one holds.
            keep_dead: dead letters kept; the oldest are dropped and counted.
            backlog: steps that may wait for the disk; senders wait beyond.

        Raises:
            ValueError: a number is negative, or an unknown durability.
            JournalError: the file cannot be used, is none, or another process has it open.
        """
        check_options(durability, keep=keep, keep_s=keep_s, keep_ids=keep_ids, keep_dead=keep_dead, backlog=backlog)
        place = Path(path)
        lock = take_lock(place)
        try:
            with failing(place, "opened"):
                connection = opened(place, durability)
        except OSError as error:
            os.close(lock)
            raise JournalError(f"the journal {place} cannot be opened: {error.strerror}. Choose another.") from error
        except BaseException:
            os.close(lock)
            raise
        return cls(place, connection, lock, durability, keep, keep_s, keep_ids, keep_dead, backlog)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what is left and close the file; safe to call twice. Waits for the disk.

        Raises:
            JournalError: the disk has failed.
        """
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._writer.close()
        finally:
            self.connection.close()
            os.close(self._lock)

    def attach(self) -> tuple[list[Record], list[Record], list[tuple[str, str]], int]:
        """What a bus that begins needs: messages to deliver, dead letters, ids seen, number of dead letters dropped.

        What it sent to other processes is not among them. A damaged message is a dead letter that counts as dropped.

        Raises:
            JournalError: a bus has this journal already, it is that of another kind of bus, or it cannot be read.
        """
        if self._has_bus:
            raise JournalError(f"the journal {self.path} belongs to another bus of this process")
        with failing(self.path, "read"):
            connection = self.connection
            if not self.is_shared and (owner := owner_of(connection)) is not None:
                raise JournalError(
                    f"the journal {self.path} is that of process {owner[2]!r} of {owner[0]!r} in space {owner[1]!r}: "
                    "give it to MqttBus.connect, and a bus in memory another one"
                )
            self._has_bus = True
            seen = connection.execute("SELECT target, id FROM seen ORDER BY seq").fetchall()
            dead = [record for record in select(connection, (State.DEAD, State.EXPIRED)) if record.way == "one_way"]
            left = self.undamaged(select(connection, (State.OPEN,)), "one_way")
            whole = [record for record in dead if record.damage is None]
            return left, whole, seen, lost(connection, "dead letters") + len(dead) - len(whole)

    def undamaged(self, records: Sequence[Record], way: Way) -> list[Record]:
        """Those of one way whose frames are messages. The others become dead letters, which `mas deadletters` lists, so
        that one damaged row keeps no bus from beginning."""
        found = []
        for record in records:
            if record.way == way:
                if (damage := record.damage) is None:
                    found.append(record)
                else:
                    self.settled(record.seq, State.DEAD, f"damaged: {damage}", tries=record.tries, effect=None)
        return found

    def accepted(
        self, frame: bytes, envelope: Envelope, *, way: Way, expires_in_s: float | None, is_kept: bool = True
    ) -> int:
        """Write a message down; returns its position. `is_kept` False: its sender has it until it is done."""
        self.last += 1
        is_promised = is_kept and way in ("one_way", "sent") and envelope.delivery is not Delivery.BEST_EFFORT
        is_over = way == "answer"
        now = time.time()
        row: Step = (
            _ACCEPT,
            (
                self.last,
                envelope.id,
                way,
                is_promised,
                frame,
                now,
                None if expires_in_s is None else now + expires_in_s,
                State.ANSWERED if is_over else State.OPEN,
                envelope.attempt,
                self.last if is_over else None,
                now if is_over else None,
            ),
        )
        if way in ("one_way", "request") and envelope.delivery is Delivery.EFFECTIVELY_ONCE:
            self.write(row, (_SEE, (envelope.target, envelope.id, self.last)))
        else:
            self.write(row)
        return self.last

    def settled(self, seq: int, state: State, cause: str, *, tries: int, effect: bytes | None) -> None:
        """Write the outcome of a message; the first one counts."""
        self.write((_SETTLE, (state, cause, tries, effect, self.last, time.time(), seq)))

    def renewed(self, seq: int, attempt: int, tries: int) -> None:
        """Write down that a message is to be delivered again; what was dead loses its deadline."""
        self.write((_RENEW, (attempt, tries, seq)))

    def forgot(self, target: str, message_id: str) -> None:
        """An id may be accepted again."""
        self.write((_FORGET, (target, message_id)))

    def write(self, *steps: Step) -> None:
        """Have statements carried out soon, in one transaction."""
        if self._batch is None:
            self._writer.add(*steps)
        else:
            self._batch += steps

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written down inside, without waiting in between, is one transaction."""
        batch: list[Step] = []
        self._batch = batch
        try:
            yield
        finally:
            self._batch = None
            if batch:
                self._writer.add(*batch)

    def check(self) -> None:
        """Refuse further work without a record.

        Raises:
            JournalError: the journal is closed, or its disk has failed.
        """
        self._writer.check()

    async def is_safe(self) -> None:
        """Wait until all that was written down so far survives: what that means is the durability's choice.

        Raises:
            JournalError: the disk has failed.
        """
        added = self._writer.added
        await self._writer.wait(added if self.durability == "group" else added - self._backlog)

    async def flush(self) -> None:
        """Wait until all that was written down so far is in the file.

        Raises:
            JournalError: the disk has failed.
        """
        await self._writer.wait(self._writer.added)

    def _tidy(self, steps: int) -> None:
        """Now and then drop what is over and give its place back. Called in the writer's thread."""
        self._steps_since += steps
        if self._steps_since < 4_000:
            return
        self._steps_since = 0
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        dropped = 0 if self.keep is None else execute(_DROP, (self.last - self.keep,)).rowcount
        if self._keep_s is not None:
            dropped += execute(_DROP_OLD, (time.time() - self._keep_s,)).rowcount
        dead = execute(_DROP_DEAD, (self._keep_dead,)).rowcount
        execute(_DROP_SEEN, (self._keep_ids,))
        execute(_DROP_TAKEN, (self._keep_ids,))
        execute("UPDATE lost SET number = number + iif(what = 'records', ?, ?)", (dropped, dead))
        execute("COMMIT")
        execute("PRAGMA incremental_vacuum").fetchall()
