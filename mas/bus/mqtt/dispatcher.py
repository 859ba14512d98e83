"""Decodes what the broker sends to one process and gives it to whom it concerns; what is no frame, or not its sender's,
is counted."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from mas.bus.journal_writer import AfterWrite
from mas.bus.memory import MemoryBus
from mas.bus.mqtt.frame_writer import FrameWriter
from mas.bus.mqtt.frames import AnswerFrame, Cancel, Codec, Confirm, Failed, Frame, PartFrame, Send, StateQuery, Status
from mas.bus.mqtt.journal import ProcessJournal
from mas.bus.mqtt.outgoing import OutgoingMessage
from mas.bus.mqtt.presence import Peers, read_presence
from mas.bus.mqtt.receiver import Receiver
from mas.bus.mqtt.sender import Sender
from mas.bus.mqtt.topics import Arrival, Peer, Topics
from mas.bus.parts import part_of
from mas.core.errors import Malformed

_CONFIRM_S = 0.05


class Dispatcher:
    """Takes all that the broker sends to one process.

    Args:
        local: its clock is that of deadlines, and it counts parts of answers.
        journal: has answers before the others hear that they came; None: nothing does.

    Attributes:
        malformed, forged: see `MqttStatistics`.
    """

    def __init__(
        self,
        sender: Sender,
        receiver: Receiver,
        *,
        writer: FrameWriter,
        peers: Peers,
        topics: Topics,
        codec: Codec,
        local: MemoryBus,
        journal: ProcessJournal | None = None,
    ) -> None:
        self.malformed = 0
        self.forged = 0
        self._topics, self._codec, self._peers, self._receiver = topics, codec, peers, receiver
        self._sender, self._writer = sender, writer
        self._clock = local.now
        self._parts = local.part_counters
        self._answers: dict[Peer, list[str]] = {}
        self._journal = journal
        is_written = None if journal is None else journal.journal.flush
        self._after_write = AfterWrite(is_written, failed=lambda _: None, name="mqtt journal: answers")
        self._takers: dict[type, Callable[[Peer, Any], None]] = {
            Send: self._take_message,
            StateQuery: receiver.query,
            Cancel: lambda peer, frame: receiver.cancel(peer, frame.ticket),
            Confirm: self._take_confirm,
            Status: self._take_status,
            AnswerFrame: self._take_answer,
            PartFrame: self._take_part,
            Failed: lambda peer, frame: sender.take_error(peer, frame.ticket, frame.error, frame.text),
        }

    def take(self, topic: str, payload: bytes) -> None:
        arrival = self._topics.arrival(topic)
        try:
            if arrival is None:
                raise Malformed(f"{topic!r} is no topic of this bus")
            if arrival.kind == "presence":
                self._take_presence(Peer(arrival.sender, arrival.process), payload)
            else:
                self._take_frame(arrival, payload)
        except Malformed:
            self.malformed += 1

    def confirm_answers(self) -> None:
        """Tell the others which of their answers arrived."""
        answers, self._answers = self._answers, {}
        for peer, tickets in answers.items():
            if peer == self._writer.me:
                self._receiver.confirm(peer, tickets)
            else:
                self._writer.confirm(peer, tickets)

    async def idle(self) -> None:
        """Wait until the answers that came are written down."""
        await self._after_write.idle()

    def _take_presence(self, peer: Peer, payload: bytes) -> None:
        if peer == self._writer.me:
            read_presence(payload)
            return
        presence = self._peers.filter.read(peer, payload) if payload else None
        if presence is not None or not payload:
            self._peers.take(peer, presence)
        if presence is not None:
            self._sender.peer_seen(peer)

    def _take_frame(self, arrival: Arrival, payload: bytes) -> None:
        frame = self._codec.decode(payload)
        if (arrival.kind == "to") is not isinstance(frame, Send):
            raise Malformed(f"a {type(frame).__name__} frame came {arrival.kind!r}")
        peer = Peer(arrival.sender, frame.process)
        if _is_forged(frame, arrival):
            self.forged += 1
            return
        self._peers.seen(peer)
        self._takers[type(frame)](peer, frame)

    def _take_message(self, peer: Peer, frame: Send) -> None:
        """A message; from here its deadline is on this process's clock."""
        deadline = None if frame.remaining_s is None else self._clock() + frame.remaining_s
        envelope = msgspec.structs.replace(frame.envelope, deadline=deadline)
        self._receiver.take(peer, msgspec.structs.replace(frame, envelope=envelope))

    def _take_confirm(self, peer: Peer, frame: Confirm) -> None:
        if peer != self._writer.me:
            self._receiver.confirm(peer, frame.tickets)
            return
        for token in frame.tickets:
            if self._writer.echoes.arrived(token):
                self._sender.reconnected()

    def _take_status(self, peer: Peer, frame: Status) -> None:
        for state in frame.states:
            self._sender.take_state(peer, state)

    def _take_answer(self, peer: Peer, frame: AnswerFrame) -> None:
        if self._journal is not None and self._journal.may_ask_again(frame.ticket):
            return  # it was asked in an earlier life: the responder keeps the answer until it is asked again
        self._sender.take_answer(frame.ticket, frame.envelope)
        self._after_write.call(lambda: self._answer_is_safe(peer, frame.ticket))

    def _take_part(self, peer: Peer, frame: PartFrame) -> None:
        """A part of an answer; dropped and counted if it is not read, or not from the request's present receiver."""
        self._parts.accepted += 1
        message = self._sender.find(frame.ticket)
        if message is None or not _read_part(message, peer, frame):
            self._parts.dropped += 1

    def _answer_is_safe(self, peer: Peer, ticket: str) -> None:
        """An answer is here, and will be in the next life of this process."""
        if not self._answers:
            asyncio.get_running_loop().call_later(_CONFIRM_S, self.confirm_answers)
        self._answers.setdefault(peer, []).append(ticket)


def _read_part(message: OutgoingMessage, peer: Peer, frame: PartFrame) -> bool:
    if message.stream is None or frame.attempt != message.attempt or message.holder not in (None, peer):
        return False
    envelope, principal = message.envelope, peer.principal
    part = part_of(envelope, frame.payload, sequence=frame.sequence, attempt=frame.again, principal=principal)
    return message.stream.take(part, frame.attempt)


def _is_forged(frame: Frame, arrival: Arrival) -> bool:
    """Whether an envelope says that somebody else sends it, or that it goes elsewhere: both the broker has checked on
    the topic only."""
    if not isinstance(frame, Send | AnswerFrame):
        return False
    is_elsewhere = isinstance(frame, Send) and frame.envelope.target != arrival.address
    return is_elsewhere or frame.envelope.principal != arrival.sender
