"""The sending side of one process: it keeps every message until some process is done with it.

A message is published to its address, where the broker gives it to one listening process. When nothing is heard of it,
the processes that may have it are queried. Each says what state it has there, or promises never to take this attempt;
only when all of them that live have promised is the next attempt published. So no two living processes handle one
message, whatever was lost. docs/delivery.md has the states.
"""

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Container
from functools import partial

from mas.bus.journal_writer import AfterWrite
from mas.bus.mqtt.client import NOBODY, NOT_AUTHORISED
from mas.bus.mqtt.frame_writer import FrameWriter
from mas.bus.mqtt.frames import MessageState, Mode
from mas.bus.mqtt.journal import ProcessJournal
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.outgoing import OrderedKeys, OutgoingMessage
from mas.bus.mqtt.presence import PeerObserver, Peers, Presence
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import PartStream
from mas.bus.undelivered import DeadLetters, bus_closed, not_a_reader, not_answered, not_received
from mas.core.errors import Closed, JournalError, Malformed, error_named
from mas.core.messages import Envelope

_RETRY_S = 0.05


class Sender(PeerObserver):
    """The messages that one process sent and that have no outcome yet.

    Args:
        clock: seconds that deadlines refer to; that of the event loop.
        journal: has messages before they are published; None: nothing does.

    Attributes:
        room: acquired before `add`; given back when the message has its outcome.
        dead: accepted messages that no process is left to give up on but this one.
        resent: attempts after the first. lost, given_up: see `MqttStatistics`.
    """

    def __init__(
        self,
        writer: FrameWriter,
        *,
        peers: Peers,
        options: MqttOptions,
        clock: Callable[[], float],
        journal: ProcessJournal | None = None,
    ) -> None:
        self.resent = 0
        self.lost = 0
        self.given_up = 0
        self.dead: DeadLetters[OutgoingMessage] = DeadLetters(options.dead_letters)
        self.room = asyncio.Semaphore(options.outbox)
        self._writer, self._peers, self._options, self._clock = writer, peers, options, clock
        self._messages: dict[str, OutgoingMessage] = {}
        self._keys = OrderedKeys(peers.listeners, self._start)
        self._journal = journal
        is_safe = None if journal is None else journal.journal.is_safe
        self._after_write = AfterWrite(is_safe, failed=self._write_failed, name="mqtt journal: sending")

    def __len__(self) -> int:
        return len(self._messages)

    def find(self, ticket: str) -> OutgoingMessage | None:
        """The message of a ticket, None: it has its outcome."""
        return self._messages.get(ticket)

    def add(
        self, envelope: Envelope, mode: Mode, deadline: float | None, stream: PartStream | None = None
    ) -> OutgoingMessage:
        """Send a message; wait for its outcome. If an earlier life sent it, the processes that may have it are queried.

        Raises:
            Malformed: it cannot travel. JournalError: it cannot be written down.
        """
        future = asyncio.get_running_loop().create_future()
        earlier = None if self._journal is None else self._journal.take_earlier(envelope, mode)
        ticket = (None if earlier is None else earlier.ticket) or secrets.token_hex(8)
        message = OutgoingMessage(envelope, future, ticket=ticket, mode=mode, deadline=deadline, stream=stream)
        self._writer.check(message)
        if self._journal is not None and message.may_repeat:
            self._journal.sent(message, earlier, expires_in_s=None if deadline is None else deadline - self._clock())
            message.is_written = False
        self._add(message)
        if not message.is_written:
            self._after_write.call(partial(self._written, message))
        return message

    def resume(self) -> None:
        """Take over what earlier lives of this process sent without an outcome. The other processes must be known."""
        if self._journal is not None:
            for message in self._journal.unfinished(self._clock()):
                self._add(message)

    def cancel(self, message: OutgoingMessage) -> None:
        """Nobody waits for it any more."""
        if message.ticket not in self._messages:
            return
        peers = {message.holder} if message.holder else set(self._peers.listeners(message.envelope.target))
        if self._journal is not None:
            self._journal.cancelled(message)
        self._remove(message)
        if message.is_sent:
            self._writer.cancel(message.ticket, peers)

    def take_state(self, peer: Peer, news: MessageState) -> None:
        """A process says which state a message has there."""
        message = self._messages.get(news.ticket)
        if message is None or (news.attempt != message.attempt and news.state not in ("done", "dead")):
            return
        message.tries = max(message.tries, news.tries)
        if news.state == "unknown":
            self._not_at(message, peer)
        elif news.state == "returned":
            message.not_before = self._clock() + (news.delay_s or 0.0)
            self._send_elsewhere(message, peer)
        elif news.state in ("done", "dead"):
            self.given_up += news.state == "dead"
            self._finish(message, message.answer_is_gone() if message.is_request else None)
        else:
            self._held_by(message, peer, news)

    def take_answer(self, ticket: str, answer: Envelope) -> None:
        """The answer to a request came; the first one counts."""
        message = self._messages.get(ticket)
        if message is not None:
            self._finish(message, answer)

    def take_error(self, peer: Peer, ticket: str, name: str, text: str) -> None:
        """A message ended in an error. What was accepted outlives a bus that closes."""
        message = self._messages.get(ticket)
        if message is None:
            return
        if name == Closed.__name__ and message.is_settled and message.holder in (None, peer):
            self._send_elsewhere(message, peer)
        else:
            self._fail(message, error_named(name, text), is_told=True)

    def peer_gone(self, peer: Peer, presence: Presence) -> None:
        """A process is gone without having left its addresses in good order: it may have died of a message."""
        addresses: Container[str] = presence.addresses
        for message in tuple(self._messages.values()):
            if message.holder == peer:
                message.tries += message.is_delivered
                self._send_elsewhere(message, peer)
            else:
                if message.may_be_at(peer) and message.envelope.target in addresses:
                    message.count_lost_attempt()
                self._not_at(message, peer)

    def peer_seen(self, peer: Peer) -> None:
        """A process announced itself: query it for what it may have."""
        now = self._clock()
        for message in self._messages.values():
            if message.holder == peer or (message.queried is not None and peer in message.queried):
                message.due = now

    def reconnected(self) -> None:
        """What was on its way when the connection broke may be lost."""
        now = self._clock()
        for message in self._messages.values():
            message.due = now + _RETRY_S
        self._writer.cancel_again()

    def check_due(self) -> None:
        """Publish what could not be published, query for what was not heard of."""
        now = self._clock()
        queries: defaultdict[Peer, list[tuple[str, int]]] = defaultdict(list)
        for peer in self._peers.suspects:
            queries[peer] = []
        for message in [message for message in self._messages.values() if message.attempt > 0 and message.due <= now]:
            for peer in self._to_query(message, now):
                queries[peer].append((message.ticket, message.attempt))
        for peer, tickets in queries.items():
            self._writer.query(peer, tickets, partial(self._peers.take_code, peer))

    def close(self) -> None:
        """Wake all senders with Closed. What was accepted stays in the journal, if there is one, for the next life."""
        for message in tuple(self._messages.values()):
            self.lost += message.is_settled and message.record is None
            if self._journal is not None:
                self._journal.interrupted(message)
            message.settle(bus_closed(message.envelope))
            self._remove(message)

    def redrive(self, message_id: str | None) -> int:
        """Send the dead letters with this id again, None: all of them; returns how many."""
        for message in (messages := self.dead.take(message_id)):
            self.given_up -= 1
            message.revive(self._clock())
            if self._journal is not None:
                self._journal.redriven(message)
            self._add(message)
        return len(messages)

    def _add(self, message: OutgoingMessage) -> None:
        self._messages[message.ticket] = message
        self._keys.add(message)
        if message.deadline is not None and message.ticket in self._messages:  # it may have failed at once
            message.at(message.deadline, self._clock, partial(self._at_deadline, message))

    def _written(self, message: OutgoingMessage) -> None:
        message.is_written = True
        if message.ticket in self._messages:
            self._keys.advance(message)

    def _write_failed(self, error: JournalError) -> None:
        """The disk has failed: what it does not have is not published."""
        for message in [message for message in self._messages.values() if not message.is_written]:
            self._fail(message, error)

    def _start(self, message: OutgoingMessage) -> None:
        """It is its turn, though perhaps not yet its time."""
        if not message.is_written:
            return
        if message.not_before > self._clock():
            message.due = message.not_before
            return
        if message.is_resumed and message.attempt == 0 and self._journal is not None:  # query first
            message.attempt, message.is_sent = self._journal.first_attempt, True
            message.due, message.pause_s = self._clock(), self._options.ack_s
            return
        message.attempt = max(1, message.attempt)
        self._publish(message)

    def _publish(self, message: OutgoingMessage) -> None:
        """Give this attempt to the address."""
        address, visibility = message.envelope.target, message.envelope.visibility
        readers = self._peers.readers(address)
        if visibility is not None and not readers <= visibility:
            self._fail(message, not_a_reader(message.envelope, readers - visibility))
            return
        message.holder, message.queried = None, None
        message.check_after(self._clock(), self._options.ack_s)
        try:
            message.is_sent = self._writer.send(message, partial(self._published, message, message.attempt))
        except Malformed as error:  # the broker behind a new connection may take less than the one before
            self._fail(message, error)

    def _published(self, message: OutgoingMessage, attempt: int, code: int) -> None:
        """The broker says what it did with one attempt."""
        if message.ticket not in self._messages or message.attempt != attempt or message.holder is not None:
            return
        if code == NOBODY:
            self._no_route(message)
        elif (error := message.refusal(code, self._writer.me.principal)) is not None:
            self._fail(message, error)
        elif code > NOT_AUTHORISED:
            message.is_sent = False  # it lacks some resource: again in a while
        else:
            message.unrouted_since = None

    def _no_route(self, message: OutgoingMessage) -> None:
        """Nobody listens: at all, or not yet again."""
        now, target = self._clock(), message.envelope.target
        message.is_sent = False
        if self._may_wait(message):
            self._wait_for_drained(message)
            return
        message.unrouted_since = since = now if message.unrouted_since is None else message.unrouted_since
        listeners = self._peers.listeners(target)
        if not listeners or now - since > self._options.absent_s:
            self._no_process_left(message)
            return
        for peer in listeners:
            self._peers.suspect(peer)
        message.due = message.not_before = now + _RETRY_S

    def _to_query(self, message: OutgoingMessage, now: float) -> tuple[Peer, ...]:
        """The processes to query for a message that is due; none where it is published instead."""
        if not message.is_sent:
            message.due = now + self._options.ack_s
            self._keys.advance(message)
            return ()
        if message.holder is None and message.queried is None:
            message.queried = set(self._peers.listeners(message.envelope.target))
            if not message.queried:
                self._retry(message)
                return ()
        message.check_after(now, message.pause_s)
        message.pause_s = min(2 * message.pause_s, self._options.poll_s)
        return (message.holder,) if message.holder is not None else tuple(message.queried or ())

    def _held_by(self, message: OutgoingMessage, peer: Peer, news: MessageState) -> None:
        message.is_delivered = news.state == "delivered"
        if message.holder != peer:
            message.holder, message.queried, message.is_orphan = peer, None, False
            message.check_after(self._clock(), self._options.ack_s)
        if news.state == "queued" or (message.is_delivered and not message.is_request):
            message.settle(None)
        self._keys.advance(message)

    def _not_at(self, message: OutgoingMessage, peer: Peer) -> None:
        """A process does not have it and will not take this attempt."""
        if message.holder == peer:
            message.tries += message.is_delivered  # it was started anew since
            self._retry(message)
        elif message.queried is not None and peer in message.queried:
            message.queried.remove(peer)
            if not message.queried and message.holder is None:
                self._retry(message)

    def _send_elsewhere(self, message: OutgoingMessage, peer: Peer) -> None:
        message.excluded.add(peer)
        if message.may_repeat:
            self._retry(message)
        else:
            self._no_process_left(message)

    def _retry(self, message: OutgoingMessage) -> None:
        """The next attempt when it is its turn, if there is one left and a process for it."""
        if message.tries >= self._options.max_attempts:
            self._fail(message, message.tried_enough())
        elif not set(self._peers.listeners(message.envelope.target)) - message.excluded:
            self._no_process_left(message)
        else:
            self.resent += 1
            message.next_attempt()
            message.check_after(self._clock(), self._options.ack_s)
            self._keys.advance(message)

    def _no_process_left(self, message: OutgoingMessage) -> None:
        """It waits for a listener if its delivery was promised to its sender; else it fails."""
        if message.is_settled and message.may_repeat:
            others = sum(other.is_orphan for other in self._messages.values() if other is not message)
            if 2 * others < self._options.outbox or not message.has_room:  # the other half is for what can be delivered
                message.wait_for_listener(self._clock() + 2 * self._options.ack_s)
                return
            self.lost += 1
        elif self._may_wait(message):
            self._wait_for_drained(message)
            return
        self._finish(message, message.undeliverable(), is_told=False)

    def _may_wait(self, message: OutgoingMessage) -> bool:
        """Whether the processes that listen take nothing new, but have not ended yet."""
        is_draining = self._peers.is_draining(message.envelope.target)
        return message.may_repeat and message.mode != "publish_nowait" and is_draining

    def _wait_for_drained(self, message: OutgoingMessage) -> None:
        """As in one process, until they have ended or another process listens."""
        message.wait_for_listener(self._clock() + self._options.ack_s)
        message.is_orphan = False

    def _at_deadline(self, message: OutgoingMessage) -> None:
        """Wait a little for the receiver's own state, where it may have the message."""
        if message.is_sent and self._writer.transport.is_up:
            message.timer = asyncio.get_running_loop().call_later(self._options.grace_s, self._expire, message)
        else:
            self._expire(message)

    def _expire(self, message: OutgoingMessage) -> None:
        envelope = message.envelope
        if message.holder is None:
            self._fail(message, not_received(envelope))
        else:
            error = not_answered(envelope) if message.is_request else not_received(envelope)
            self._finish(message, error, is_told=False)

    def _fail(self, message: OutgoingMessage, error: Exception, *, is_told: bool = False) -> None:
        if message.is_settled:  # its sender believes it to be on its way
            self.given_up += 1
            self.dead.add(message.ticket, message, str(error))
        self._finish(message, error, is_told=is_told)

    def _finish(self, message: OutgoingMessage, outcome: Envelope | Exception | None, *, is_told: bool = True) -> None:
        """`is_told`: a process said so; else one may still have it."""
        if self._journal is not None:
            self._journal.finished(message, outcome, is_told=is_told)
        message.settle(outcome)
        self._remove(message)

    def _remove(self, message: OutgoingMessage) -> None:
        if self._messages.pop(message.ticket, None) is not None:
            message.stop_timer()
            self._keys.remove(message)
            if message.has_room:
                self.room.release()
