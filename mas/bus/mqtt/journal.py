"""What a process on a broker writes down, so that after a kill it comes back as itself.

Its name and the id of its connection stay the same in every life, so that the others know it again; each life has a
number. There are the tickets of what it sent, what of others it has done, and the presences of other processes: those
that may have a message are queried before another one gets it.
"""

import asyncio
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from mas.bus.in_flight import Outcome
from mas.bus.journal import Journal
from mas.bus.journal_tables import State, connect, failing, owner_of, select
from mas.bus.mqtt.frames import AnswerFrame, Codec, Failed, Mode, Stored, stored
from mas.bus.mqtt.outgoing import OutgoingMessage
from mas.bus.mqtt.presence import PeerObserver, Presence, read_presence
from mas.bus.mqtt.topics import Peer
from mas.bus.wire import decode, encode
from mas.core.errors import BusError, Expired, JournalError, RemoteError, error_named
from mas.core.messages import Delivery, Envelope, Payload

_ATTEMPTS = 1 << 20
"""Attempts of one message in one life, at most: those of a later life are higher than any of an earlier one."""
_TICKET = "INSERT INTO post VALUES (?, ?, ?, ?)"
_OVER = "UPDATE record SET state = ?, cause = ?, effect = ?, tries = ?, ended = ?, ended_at = ? WHERE seq = ?"
_SET_TICKET = "UPDATE post SET ticket = ? WHERE seq = ?"
_OPEN = "UPDATE record SET state = 'open', cause = '', ended = NULL, ended_at = NULL WHERE seq = ?"
_ADOPT = "UPDATE record SET promised = 1 WHERE state = 'open' AND way = 'one_way' AND id = ?"
_TAKEN = "INSERT OR REPLACE INTO taken VALUES (?, ?, ?, ?, ?, ?)"
_CONFIRMED = "UPDATE taken SET reply = NULL WHERE principal = ? AND process = ? AND ticket = ?"
_PRESENCE = "INSERT OR REPLACE INTO peer VALUES (?, ?, ?)"
_GONE = "DELETE FROM peer WHERE principal = ? AND process = ?"
_EARLIER = (
    "SELECT target, id, ticket, seq, state, way FROM post JOIN record USING (seq, id) "
    "WHERE state IN ('open', 'dead', 'expired') OR ticket IS NOT NULL ORDER BY seq"
)


class Owner(msgspec.Struct, frozen=True):
    """Whose journal it is: one process, by the name of its principal, and the id of its connection to the broker.

    `life`: how often the process has begun, this time included.
    """

    principal: str
    space: str
    process: str
    client: str
    life: int


def take_ownership(journal: Journal, *, principal: str, space: str, process: str | None, new: str) -> Owner:
    """Begin another life of the process that has the journal; it must be on the disk before the process says anything.

    Args:
        process: what it is called; None: as before, or `new` in its first life.

    Raises:
        JournalError: it is the journal of another process, or of a bus in memory, or cannot be used.
    """
    with failing(journal.path, "claimed"):
        before = owner_of(journal.connection)
    if before is None:
        if journal.last:
            raise JournalError(f"the journal {journal.path} is that of a bus in memory; name a new file")
        owner = Owner(principal, space, process or new, secrets.token_hex(12), 1)
        journal.write(("INSERT INTO owner VALUES (?, ?, ?, ?, ?)", msgspec.structs.astuple(owner)))
    else:
        owner = Owner(*before)
        _check_owner(journal, owner, {"principal": principal, "space": space, "process": process or owner.process})
        owner = msgspec.structs.replace(owner, life=owner.life + 1)
        journal.write(("UPDATE owner SET life = ?", (owner.life,)))
    journal.is_shared = True
    return owner


def _check_owner(journal: Journal, owner: Owner, wanted: dict[str, str]) -> None:
    """Raises JournalError: the journal belongs to another process."""
    for what, name in wanted.items():
        if getattr(owner, what) != name:
            raise JournalError(
                f"the journal {journal.path} is that of {what} {getattr(owner, what)!r}, and this one is {name!r}: "
                "each process has a journal of its own; name another file"
            )


class EarlierMessage(msgspec.Struct, frozen=True):
    """A message of an earlier life. `ticket` None: it is finished and cannot be queried for."""

    ticket: str | None
    seq: int
    state: State
    way: Literal["sent", "asked"]

    @property
    def is_settled(self) -> bool:
        """It was done or answered, or is on its way to be."""
        return self.state in (State.OPEN, State.PROCESSED, State.ANSWERED)


class ProcessJournal(PeerObserver):
    """The journal of one process on a broker, which `take_ownership` has claimed.

    Args:
        payloads: kind -> class of every payload that answers may hold.

    Raises:
        Malformed: it holds a message whose payload's class is unknown here. JournalError: it cannot be read.
    """

    def __init__(self, journal: Journal, owner: Owner, payloads: Mapping[str, type[Payload]]) -> None:
        self.owner, self.journal = owner, journal
        self._codec = Codec(payloads, max_bytes=sys.maxsize)
        self._reading: sqlite3.Connection | None = None
        self._earlier: dict[tuple[str, str, str], EarlierMessage] = {}
        tickets: dict[int, str | None] = {}
        with failing(journal.path, "read"):
            for target, message_id, ticket, seq, state, way in journal.connection.execute(_EARLIER):
                self._earlier[way, target, message_id] = EarlierMessage(ticket, seq, State(state), way)
                tickets[seq] = ticket
            self._unasked = {
                earlier.ticket
                for earlier in self._earlier.values()
                if earlier.way == "asked" and earlier.state is not State.ANSWERED
            }
            left = journal.undamaged(select(journal.connection, (State.OPEN,)), "sent")
        self._left = [(record, record.envelope, tickets[record.seq]) for record in left]

    @property
    def first_attempt(self) -> int:
        """Above every attempt of an earlier life."""
        return self.owner.life * _ATTEMPTS

    def unfinished(self, now: float) -> Iterator[OutgoingMessage]:
        """What earlier lives sent one way and is not done yet, in order. `now`: on the clock of deadlines."""
        for record, envelope, ticket in self._left:
            deadline = None if record.deadline is None else now + record.deadline - time.time()
            future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            future.set_result(None)
            timeless = msgspec.structs.replace(envelope, deadline=None)
            message = OutgoingMessage(
                timeless, future, ticket=ticket or secrets.token_hex(8), mode="publish", deadline=deadline
            )
            message.record, message.has_room, message.is_resumed = record.seq, False, ticket is not None
            if ticket is None:  # a dead letter that is to be delivered again
                self.journal.write((_SET_TICKET, (message.ticket, record.seq)))
            yield message
        self._left.clear()

    def earlier(self, envelope: Envelope, *, is_request: bool) -> EarlierMessage | None:
        """The message as an earlier life of this process sent it; None: it did not, or its id may be accepted twice.

        Raises:
            JournalError: it had another payload then.
        """
        if envelope.delivery is not Delivery.EFFECTIVELY_ONCE:
            return None
        earlier = self._earlier.get(("asked" if is_request else "sent", envelope.target, envelope.id))
        frame = None if earlier is None else self._read(earlier.seq, "frame")
        if earlier is None or frame is None:
            return None
        if not self._is_same(decode(frame).payload, envelope.payload):
            raise JournalError(
                f"message {envelope.id!r} to {envelope.target!r} was sent by an earlier life of this process with "
                "another payload: give each message an id of its own, for instance with `bus.life` in it"
            )
        return earlier

    def take_earlier(self, envelope: Envelope, mode: Mode) -> EarlierMessage | None:
        """As `earlier`, of a message that is about to be sent; it is found once, since it belongs to this life then."""
        earlier = self.earlier(envelope, is_request=mode == "request")
        if earlier is not None:
            del self._earlier[earlier.way, envelope.target, envelope.id]
            self._unasked.discard(earlier.ticket)
        return earlier

    def may_ask_again(self, ticket: str) -> bool:
        """Whether an earlier life asked this without hearing the answer, and this one has not asked it yet."""
        return ticket in self._unasked

    def outcome(self, earlier: EarlierMessage) -> Envelope | None:
        """What became of a settled message; None for one that went one way.

        Raises:
            The error that its handler raised. JournalError: the journal does not have the answer any more.
        """
        if earlier.way == "sent":
            return None
        encoded = self._read(earlier.seq, "effect")
        if encoded is None:
            raise JournalError(f"the journal {self.journal.path} does not keep the answer to message {earlier.seq}")
        frame = self._codec.decode(encoded)
        if isinstance(frame, Failed):
            raise error_named(frame.error, frame.text)
        assert isinstance(frame, AnswerFrame)
        return frame.envelope

    def sent(self, message: OutgoingMessage, earlier: EarlierMessage | None, *, expires_in_s: float | None) -> None:
        """Write a message down that is about to be sent; `earlier`: as an earlier life sent it.

        Raises:
            JournalError: the journal is closed, or its disk has failed. Malformed: it cannot hold the payload.
        """
        journal, envelope = self.journal, message.envelope
        journal.check()
        if earlier is not None and earlier.ticket is not None:
            message.record, message.is_resumed = earlier.seq, True
            journal.write((_OPEN, (earlier.seq,)))
            return
        if earlier is not None:
            self._over(earlier.seq, State.FAILED, "sent again since")
        way: Literal["sent", "asked"] = "asked" if message.is_request else "sent"
        with journal.together():
            message.record = journal.accepted(encode(envelope), envelope, way=way, expires_in_s=expires_in_s)
            journal.write((_TICKET, (message.record, envelope.target, envelope.id, message.ticket)))

    def redriven(self, message: OutgoingMessage) -> None:
        """A dead letter is sent again."""
        if message.record is not None:
            self.journal.write((_OPEN, (message.record,)), (_SET_TICKET, (message.ticket, message.record)))

    def finished(self, message: OutgoingMessage, outcome: Envelope | Exception | None, *, is_told: bool) -> None:
        """Write the outcome down before the sender has it: done (None), an answer, or an error.

        `is_told`: a process said so; else one may still have it, and is queried when the message is sent again.
        """
        if message.record is None:
            return
        process, ticket = self.owner.process, message.ticket
        if outcome is None:
            self._over(message.record, State.PROCESSED)
        elif isinstance(outcome, Envelope):
            effect = self._codec.encode(AnswerFrame(process, ticket, outcome))
            self._over(message.record, State.ANSWERED, effect=effect)
        elif message.is_request and (isinstance(outcome, RemoteError) or not isinstance(outcome, BusError)):
            effect = self._codec.encode(Failed(process, ticket, type(outcome).__name__, str(outcome)))
            self._over(message.record, State.ANSWERED, _cause(outcome), effect=effect)
        else:
            state = _state(message, outcome)
            self._over(message.record, state, _cause(outcome), tries=message.tries)
            if is_told:
                self.journal.write((_SET_TICKET, (None, message.record)))

    def cancelled(self, message: OutgoingMessage) -> None:
        """Nobody waits for a message any more."""
        if message.record is not None:
            self._over(message.record, State.FAILED, "its sender was cancelled")
            self.journal.write((_SET_TICKET, (None, message.record)))

    def interrupted(self, message: OutgoingMessage) -> None:
        """The bus is closed. What was accepted stays open; a sender whose message was refused may send it again."""
        if message.record is not None and not message.is_settled:
            self._over(message.record, State.FAILED, "Closed: the bus was closed")

    def close(self) -> None:
        """The bus is closed; what it wrote down is written on."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def taken(self) -> Iterator[tuple[tuple[Peer, str], int, bytes | None]]:
        """What was done here for others, oldest first: (process, ticket), attempt, and an answer that may be missed."""
        rows = self.journal.connection.execute("SELECT * FROM taken ORDER BY seq").fetchall()
        for principal, process, ticket, attempt, reply, _ in rows:
            yield (Peer(principal, process), ticket), attempt, reply

    def took(self, key: tuple[Peer, str], attempt: int, reply: bytes | None) -> None:
        """A message of another process is done or answered."""
        (peer, ticket) = key
        self.journal.write((_TAKEN, (*peer, ticket, attempt, reply, self.journal.last)))

    def adopt(self, message_id: str) -> None:
        """A message is kept here that its sender may forget."""
        self.journal.write((_ADOPT, (message_id,)))

    def confirmed(self, key: tuple[Peer, str]) -> None:
        """An answer reached its requester."""
        (peer, ticket) = key
        self.journal.write((_CONFIRMED, (*peer, ticket)))

    def peers(self) -> Iterator[tuple[Peer, Presence]]:
        """The processes that this one knew in its last life."""
        rows = self.journal.connection.execute("SELECT * FROM peer").fetchall()
        for principal, process, payload in rows:
            presence = read_presence(payload)
            assert presence is not None
            yield Peer(principal, process), presence

    def peer_changed(self, peer: Peer, presence: Presence | None) -> None:
        """Another process is there, or gone."""
        if peer == (self.owner.principal, self.owner.process):
            return
        if presence is None:
            self.journal.write((_GONE, peer))
        else:
            self.journal.write((_PRESENCE, (*peer, msgspec.json.encode(presence))))

    def _is_same(self, before: Payload, now: Payload) -> bool:
        """Whether two payloads are one, though one of them may travel by reference: lives may differ in their store."""
        if isinstance(before, Stored) is isinstance(now, Stored):
            return before == now
        return self._referred(before) == self._referred(now)

    def _referred(self, payload: Payload) -> Payload:
        return payload if isinstance(payload, Stored) else stored(self._codec.pack(payload))

    def _over(self, seq: int, state: State, cause: str = "", *, effect: bytes | None = None, tries: int = 0) -> None:
        self.journal.write((_OVER, (state, cause, effect, tries, self.journal.last, time.time(), seq)))

    def _read(self, seq: int, column: Literal["frame", "effect"]) -> bytes | None:
        """Something of a message that is in the file; None: it was dropped to keep the file small."""
        with failing(self.journal.path, "read"):
            if self._reading is None:
                self._reading = connect(self.journal.path)
            row = self._reading.execute(f"SELECT {column} FROM record WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else row[0]


def _state(message: OutgoingMessage, error: Exception) -> State:
    """A dead letter, if its delivery was promised to its sender."""
    if not message.is_settled:
        return State.FAILED
    if not isinstance(error, Expired):
        return State.DEAD
    return State.EXPIRED if message.holder is None else State.FAILED  # who holds it may be at work on it


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
