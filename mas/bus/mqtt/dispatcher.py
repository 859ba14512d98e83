"""What comes in from the broker, taken to whom it concerns; what is no frame, or not its sender's, is counted."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from mas.bus.mqtt.admission import Admission
from mas.bus.mqtt.after_write import Behind
from mas.bus.mqtt.frame_writer import Speaker
from mas.bus.mqtt.frames import Answer, Cancel, Codec, Failed, Find, Frame, Got, Part, Send, Status
from mas.bus.mqtt.journal import Store
from mas.bus.mqtt.presence import Cards, read_card
from mas.bus.mqtt.receiver import Desk
from mas.bus.mqtt.sender import Outbox
from mas.bus.mqtt.topics import Arrival, Peer, Topics
from mas.core.errors import Malformed

_GOT_S = 0.05


class Ear:
    """Hears all that the broker sends to one process.

    Args:
        admission: decides which cards are believed.
        clock: seconds that deadlines refer to.
        echoed: called with what this process said to itself.
        parts: called with parts of answers, and who sent them.
        store: has answers before the others hear that they came; None: nothing does.
    """

    def __init__(
        self,
        *,
        topics: Topics,
        codec: Codec,
        cards: Cards,
        admission: Admission,
        desk: Desk,
        outbox: Outbox,
        speaker: Speaker,
        clock: Callable[[], float],
        echoed: Callable[[str], None],
        parts: Callable[[Peer, Part], None],
        store: Store | None = None,
    ) -> None:
        self.malformed = 0
        self.forged = 0
        self._topics = topics
        self._codec = codec
        self._cards = cards
        self._admission = admission
        self._desk = desk
        self._outbox = outbox
        self._speaker = speaker
        self._clock = clock
        self._echoed = echoed
        self._answers: dict[Peer, list[str]] = {}
        self._store = store
        written = None if store is None else store.journal.flush
        self._writing = Behind(written, failed=lambda _: None, name="mqtt journal: answers")
        self._takers: dict[type, Callable[[Peer, Any], None]] = {
            Send: self._take_message,
            Find: desk.find,
            Cancel: lambda peer, frame: desk.cancel(peer, frame.ticket),
            Got: self._take_got,
            Status: self._take_status,
            Answer: self._take_answer,
            Part: parts,
            Failed: lambda peer, frame: outbox.failed(peer, frame.ticket, frame.error, frame.text),
        }

    def hear(self, topic: str, payload: bytes) -> None:
        """Something came in."""
        arrival = self._topics.arrival(topic)
        try:
            if arrival is None:
                raise Malformed(f"{topic!r} is no topic of this bus")
            if arrival.kind == "card":
                self._take_card(Peer(arrival.sender, arrival.process), payload)
            else:
                self._take_frame(arrival, payload)
        except Malformed:
            self.malformed += 1

    def say_what_came(self) -> None:
        """Tell the others which of their answers arrived."""
        answers, self._answers = self._answers, {}
        for peer, tickets in answers.items():
            if peer == self._speaker.me:
                self._desk.got(peer, tickets)
            else:
                self._speaker.got(peer, tickets)

    def _take_card(self, peer: Peer, payload: bytes) -> None:
        if peer == self._speaker.me:
            read_card(payload)
            return
        card = self._admission.read(peer, payload) if payload else None
        if card is not None or not payload:
            self._cards.take(peer, card)
        if card is not None:
            self._outbox.appeared(peer)

    def _take_frame(self, arrival: Arrival, payload: bytes) -> None:
        frame = self._codec.decode(payload)
        if (arrival.kind == "to") is not isinstance(frame, Send):
            raise Malformed(f"a {type(frame).__name__} frame came {arrival.kind!r}")
        peer = Peer(arrival.sender, frame.process)
        if _is_forged(frame, arrival):
            self.forged += 1
            return
        self._cards.heard(peer)
        self._takers[type(frame)](peer, frame)

    def _take_message(self, peer: Peer, frame: Send) -> None:
        """A message; from here its deadline is on this process's clock."""
        deadline = None if frame.remaining_s is None else self._clock() + frame.remaining_s
        envelope = msgspec.structs.replace(frame.envelope, deadline=deadline)
        self._desk.send(peer, msgspec.structs.replace(frame, envelope=envelope))

    def _take_got(self, peer: Peer, frame: Got) -> None:
        if peer == self._speaker.me:
            for token in frame.tickets:
                self._echoed(token)
        else:
            self._desk.got(peer, frame.tickets)

    def _take_status(self, peer: Peer, frame: Status) -> None:
        for word in frame.words:
            self._outbox.heard(peer, word)

    def _take_answer(self, peer: Peer, frame: Answer) -> None:
        if self._store is not None and self._store.may_ask_again(frame.ticket):
            return  # it was asked in an earlier life: whoever answered keeps it until it is asked again
        self._outbox.answered(frame.ticket, frame.envelope)
        self._writing.call(lambda: self._came(peer, frame.ticket))

    async def idle(self) -> None:
        """Wait until the answers that came are written down."""
        await self._writing.idle()

    def _came(self, peer: Peer, ticket: str) -> None:
        """An answer is here, and will be in the next life of this process."""
        if not self._answers:
            asyncio.get_running_loop().call_later(_GOT_S, self.say_what_came)
        self._answers.setdefault(peer, []).append(ticket)


def _is_forged(frame: Frame, arrival: Arrival) -> bool:
    """Whether an envelope says that somebody else sends it, or that it goes elsewhere: both the broker has checked on
    the topic only."""
    if not isinstance(frame, Send | Answer):
        return False
    is_elsewhere = isinstance(frame, Send) and frame.envelope.target != arrival.address
    return is_elsewhere or frame.envelope.principal != arrival.sender
