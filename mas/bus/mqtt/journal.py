"""What a process on a broker writes down, so that after a kill it comes back as itself.

Its name and the id of its connection stay the same in every life, so that the others know it again; each life has a
number. Of what it sent there is the ticket, of what others sent that it is done, and of those it knew the card: who may
have a message is asked for it before another one gets it.
"""

import asyncio
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from mas.bus.journal import Journal
from mas.bus.mqtt.frames import Answer, Codec, Failed, Mode, Stored, stored
from mas.bus.mqtt.outgoing import Post
from mas.bus.mqtt.owner import Owner
from mas.bus.mqtt.presence import Card, read_card
from mas.bus.mqtt.topics import Peer
from mas.bus.record import State, connect, failing, select
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
_GOT = "UPDATE taken SET reply = NULL WHERE principal = ? AND process = ? AND ticket = ?"
_CARD = "INSERT OR REPLACE INTO peer VALUES (?, ?, ?)"
_NO_CARD = "DELETE FROM peer WHERE principal = ? AND process = ?"
_FORMER = (
    "SELECT target, id, ticket, seq, state, way FROM post JOIN record USING (seq, id) "
    "WHERE state IN ('open', 'dead', 'expired') OR ticket IS NOT NULL ORDER BY seq"
)


class Former(msgspec.Struct, frozen=True):
    """A message of an earlier life. `ticket` None: it is over and cannot be asked for."""

    ticket: str | None
    seq: int
    state: State
    way: Literal["sent", "asked"]

    @property
    def is_settled(self) -> bool:
        """It was done or answered, or is on its way to be."""
        return self.state in (State.OPEN, State.PROCESSED, State.ANSWERED)


class Store:
    """The journal of one process on a broker, which `owner` has claimed.

    Args:
        payloads: kind -> class of every payload that answers may hold.

    Raises:
        Malformed: it holds a message whose payload's class is unknown here. JournalError: it cannot be read.
    """

    def __init__(self, journal: Journal, owner: Owner, payloads: Mapping[str, type[Payload]]) -> None:
        self.owner = owner
        self.journal = journal
        self._codec = Codec(payloads, max_bytes=sys.maxsize)
        self._reading: sqlite3.Connection | None = None
        self._former: dict[tuple[str, str, str], Former] = {}
        tickets: dict[int, str | None] = {}
        with failing(journal.path, "read"):
            for target, message_id, ticket, seq, state, way in journal.connection.execute(_FORMER):
                self._former[way, target, message_id] = Former(ticket, seq, State(state), way)
                tickets[seq] = ticket
            self._unasked = {
                former.ticket
                for former in self._former.values()
                if former.way == "asked" and former.state is not State.ANSWERED
            }
            left = journal.undamaged(select(journal.connection, (State.OPEN,)), "sent")
        self._left = [(record, record.envelope, tickets[record.seq]) for record in left]

    @property
    def first_attempt(self) -> int:
        """Above every attempt of an earlier life."""
        return self.owner.life * _ATTEMPTS

    def posts(self, now: float) -> Iterator[Post]:
        """What earlier lives sent one way and nobody has done yet, in order. `now`: on the clock of deadlines."""
        for record, envelope, ticket in self._left:
            deadline = None if record.deadline is None else now + record.deadline - time.time()
            future: asyncio.Future[Envelope | None] = asyncio.get_running_loop().create_future()
            future.set_result(None)
            timeless = msgspec.structs.replace(envelope, deadline=None)
            post = Post(ticket or secrets.token_hex(8), timeless, "tell", deadline, future)
            post.record, post.has_room, post.is_resumed = record.seq, False, ticket is not None
            if ticket is None:  # a dead letter that is to be delivered again
                self.journal.write((_SET_TICKET, (post.ticket, record.seq)))
            yield post
        self._left.clear()

    def former(self, envelope: Envelope, *, is_request: bool) -> Former | None:
        """The message as an earlier life of this process sent it; None: it did not, or its id may be accepted twice.

        Raises:
            JournalError: it had another payload then.
        """
        if envelope.delivery is not Delivery.EFFECTIVELY_ONCE:
            return None
        former = self._former.get(("asked" if is_request else "sent", envelope.target, envelope.id))
        frame = None if former is None else self._read(former.seq, "frame")
        if former is None or frame is None:
            return None
        if not self._is_same(decode(frame).payload, envelope.payload):
            raise JournalError(
                f"message {envelope.id!r} to {envelope.target!r} was sent by an earlier life of this process with "
                "another payload: give each message an id of its own, for instance with `bus.life` in it"
            )
        return former

    def again(self, envelope: Envelope, mode: Mode) -> Former | None:
        """As `former`, of a message that is about to be sent; it is found once, since it belongs to this life then."""
        former = self.former(envelope, is_request=mode == "ask")
        if former is not None:
            del self._former[former.way, envelope.target, envelope.id]
            self._unasked.discard(former.ticket)
        return former

    def may_ask_again(self, ticket: str) -> bool:
        """Whether an earlier life asked this without hearing the answer, and this one has not asked it yet."""
        return ticket in self._unasked

    def outcome(self, former: Former) -> Envelope | None:
        """What became of a settled message; None for one that went one way.

        Raises:
            The error that its handler raised. JournalError: the journal does not have the answer any more.
        """
        if former.way == "sent":
            return None
        encoded = self._read(former.seq, "effect")
        if encoded is None:
            raise JournalError(f"the journal {self.journal.path} does not keep the answer to message {former.seq}")
        frame = self._codec.decode(encoded)
        if isinstance(frame, Failed):
            raise error_named(frame.error, frame.text)
        assert isinstance(frame, Answer)
        return frame.envelope

    def sent(self, post: Post, former: Former | None, *, expires_in_s: float | None) -> None:
        """Write a message down that is about to be sent; `former`: as an earlier life sent it.

        Raises:
            JournalError: the journal is closed, or its disk has failed. Malformed: it cannot hold the payload.
        """
        journal, envelope = self.journal, post.envelope
        journal.check()
        if former is not None and former.ticket is not None:
            post.record, post.is_resumed = former.seq, True
            journal.write((_OPEN, (former.seq,)))
            return
        if former is not None:
            self._over(former.seq, State.FAILED, "sent again since")
        way: Literal["sent", "asked"] = "asked" if post.mode == "ask" else "sent"
        with journal.together():
            post.record = journal.accepted(encode(envelope), envelope, way=way, expires_in_s=expires_in_s)
            journal.write((_TICKET, (post.record, envelope.target, envelope.id, post.ticket)))

    def redriven(self, post: Post) -> None:
        """A dead letter is sent again."""
        if post.record is not None:
            self.journal.write((_OPEN, (post.record,)), (_SET_TICKET, (post.ticket, post.record)))

    def over(self, post: Post, outcome: Envelope | Exception | None, *, is_told: bool) -> None:
        """A message is done (None), answered, or ended in an error, before its sender is told.

        `is_told`: a process said so; else one may still have it, and is asked when the message is sent again.
        """
        if post.record is None:
            return
        process, ticket = self.owner.process, post.ticket
        if outcome is None:
            self._over(post.record, State.PROCESSED)
        elif isinstance(outcome, Envelope):
            effect = self._codec.encode(Answer(process, ticket, outcome))
            self._over(post.record, State.ANSWERED, effect=effect)
        elif post.mode == "ask" and (isinstance(outcome, RemoteError) or not isinstance(outcome, BusError)):
            effect = self._codec.encode(Failed(process, ticket, type(outcome).__name__, str(outcome)))
            self._over(post.record, State.ANSWERED, _cause(outcome), effect=effect)
        else:
            state = _state(post, outcome)
            self._over(post.record, state, _cause(outcome), tries=post.tries)
            if is_told:
                self.journal.write((_SET_TICKET, (None, post.record)))

    def cancelled(self, post: Post) -> None:
        """Nobody waits for a message any more."""
        if post.record is not None:
            self._over(post.record, State.FAILED, "its sender was cancelled")
            self.journal.write((_SET_TICKET, (None, post.record)))

    def interrupted(self, post: Post) -> None:
        """The bus is closed. What was accepted stays open; who was told that it is not may send it again."""
        if post.record is not None and not post.future.done():
            self._over(post.record, State.FAILED, "Closed: the bus was closed")

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
        """A message lies here that its sender is told to forget."""
        self.journal.write((_ADOPT, (message_id,)))

    def got(self, key: tuple[Peer, str]) -> None:
        """An answer reached its requester."""
        (peer, ticket) = key
        self.journal.write((_GOT, (*peer, ticket)))

    def peers(self) -> Iterator[tuple[Peer, Card]]:
        """Whom this process knew in its last life."""
        rows = self.journal.connection.execute("SELECT * FROM peer").fetchall()
        for principal, process, card in rows:
            found = read_card(card)
            assert found is not None
            yield Peer(principal, process), found

    def know(self, peer: Peer, card: Card | None) -> None:
        """A process is there, or gone."""
        if card is None:
            self.journal.write((_NO_CARD, peer))
        else:
            self.journal.write((_CARD, (*peer, msgspec.json.encode(card))))

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


def _state(post: Post, error: Exception) -> State:
    """A dead letter, if its sender was told that it will be delivered."""
    if not post.future.done():
        return State.FAILED
    if not isinstance(error, Expired):
        return State.DEAD
    return State.EXPIRED if post.holder is None else State.FAILED  # who holds it may be at work on it


def _cause(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
