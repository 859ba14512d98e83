"""The receiving side of one process: gives each message of another process to the local bus once, and keeps its state.

A receiver answers messages and queries and never speaks first. So a frame that was lost is queried for again, and a
message that comes twice gets the same reply twice. docs/delivery.md has the states.
"""

import asyncio
from collections import defaultdict
from collections.abc import Container, Iterable
from functools import partial
from typing import Final

import msgspec

from mas.bus.in_flight import DeliveryEvent
from mas.bus.journal_writer import AfterWrite
from mas.bus.memory import MemoryBus
from mas.bus.mqtt.frame_writer import FrameWriter
from mas.bus.mqtt.frames import (
    LAST,
    AnswerFrame,
    Codec,
    Failed,
    MessageState,
    PartFrame,
    RemoteState,
    Send,
    StateQuery,
    Status,
)
from mas.bus.mqtt.journal import ProcessJournal
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.presence import PeerObserver, Presence
from mas.bus.mqtt.received import FinishedMessages, MessageKey, ReceivedMessage
from mas.bus.mqtt.references import References
from mas.bus.mqtt.topics import Peer
from mas.bus.parts import Take
from mas.core.errors import Closed, Malformed, MasError, NoRoute
from mas.core.messages import Delivery, Envelope

_STATES = 500
"""In one frame: so that it is short enough for any broker, whatever came at once."""
_FINAL: Final = frozenset({"done", "dead", "returned", "unknown"})


class Receiver(PeerObserver):
    """What other processes sent to this one.

    Args:
        local: the bus that its subscriptions belong to.
        routes: the addresses that this process listens at.
        options: `remembered` finished messages are kept; as many again of senders that are away and may come back.
        references: fetches and stores payloads that travel by reference.
        journal: has what is done before its sender hears of it; None: nothing does.

    Attributes:
        repeated: messages that came again.
    """

    def __init__(
        self,
        local: MemoryBus,
        *,
        codec: Codec,
        writer: FrameWriter,
        routes: Container[str],
        options: MqttOptions,
        references: References,
        journal: ProcessJournal | None = None,
    ) -> None:
        self.repeated = 0
        self._local = local
        self._process = writer.me.process
        self._codec, self._writer, self._routes = codec, writer, routes
        self._references = references
        self._messages: dict[MessageKey, ReceivedMessage] = {}
        self._finished = FinishedMessages(options.remembered, forget=lambda key: self._messages.pop(key, None))
        self._news: defaultdict[Peer, dict[str, MessageState]] = defaultdict(dict)
        self._journal = journal
        is_written = None if journal is None else journal.journal.flush
        self._after_write = AfterWrite(is_written, failed=lambda _: None, name="mqtt journal: done")
        for key, attempt, reply in () if journal is None else journal.taken():
            self._messages[key] = ReceivedMessage(key, attempt, "done", changed=self._changed, reply=reply)
            self._finished.add(key)

    def take(self, sender: Peer, frame: Send) -> None:
        """A message came; its envelope says who sent it, and when it expires on this process's clock."""
        key = (sender, frame.ticket)
        known = self._messages.get(key)
        if known is not None and (frame.attempt <= known.attempt or known.state not in ("returned", "unknown")):
            self.repeated += 1
            self._tell(known, frame.attempt)
            return
        self._finished.discard(key)
        envelope = frame.envelope
        message = self._messages[key] = ReceivedMessage(
            key,
            frame.attempt,
            "received",
            changed=self._changed,
            mode=frame.mode,
            delivery=envelope.delivery,
            tries=frame.tries,
            handed=(envelope.target, envelope.id),
        )
        if frame.tries >= envelope.attempt:
            envelope = msgspec.structs.replace(envelope, attempt=frame.tries + 1)
        take = self._part_writer(key, frame.attempt) if frame.is_streamed else None
        message.task = asyncio.create_task(self._hand_over(message, envelope, take), name=f"mqtt {envelope.id}")
        message.task.add_done_callback(lambda task: self._handed_over(message, is_cancelled=task.cancelled()))
        if frame.eager:
            self._tell(message, frame.attempt)

    def query(self, sender: Peer, frame: StateQuery) -> None:
        """A sender has heard nothing: tell it the state, and promise not to take what has not come."""
        for ticket, attempt in frame.tickets:
            key = (sender, ticket)
            message = self._messages.get(key)
            if message is None:
                message = self._refuse(key, attempt)
            elif message.state == "unknown":
                message.attempt = max(message.attempt, attempt)
            self._tell(message, attempt)

    def cancel(self, sender: Peer, ticket: str) -> None:
        """Nobody waits for the message any more; if it is still to come, it is refused."""
        key = (sender, ticket)
        message = self._messages.get(key)
        if message is None:
            self._refuse(key, LAST)
            return
        if message.is_request and message.state == "delivered" and message.handed is not None:
            self._local.forget(*message.handed)  # it may be asked anew
        if message.task is not None:
            message.attempt = LAST
            message.task.cancel()
        elif message.state in ("returned", "unknown"):
            message.attempt = LAST

    def confirm(self, sender: Peer, tickets: Iterable[str]) -> None:
        """Answers arrived: only remember that there was one."""
        for ticket in tickets:
            message = self._messages.get((sender, ticket))
            if message is not None and message.reply is not None:
                message.reply, message.state = None, "done"
                if self._journal is not None:
                    self._journal.confirmed(message.key)

    def peer_gone(self, peer: Peer, presence: Presence) -> None:
        """A sender is gone. If it may come back, the states of its messages are kept for it."""
        if presence.is_leaving or not presence.away_s:
            self._stop_requests(peer)
        if presence.away_s:
            self._finished.away(peer)

    def peer_back(self, peer: Peer) -> None:
        """It came back, and will query soon."""
        self._finished.back(peer)

    def peer_forgotten(self, peer: Peer) -> None:
        """It did not come back in time."""
        self._finished.forgotten(peer)
        self._stop_requests(peer)

    @property
    def is_confirmed(self) -> bool:
        """Whether all answers that are remembered were confirmed by their requesters. Errors never are."""
        return all(message.reply is None and not message.is_storing for message in self._messages.values())

    @property
    def is_storing(self) -> bool:
        """Whether an answer is on its way into the store."""
        return any(message.is_storing for message in self._messages.values())

    async def close(self) -> None:
        """Wait for what is being handed over, and tell the state of the rest; the local bus must be closed.

        What is in its queues can still be received here, so it is not given to others. What a receiver has is: nobody
        would hear whether it was done.
        """
        tasks = [message.task for message in self._messages.values() if message.task is not None]
        if tasks:
            await asyncio.wait(tasks)
        await self._after_write.idle()
        for message in tuple(self._messages.values()):
            if not message.is_request and message.state in ("queued", "delivered"):
                is_delivered = message.state == "delivered"
                message.tries += is_delivered
                if self._journal is not None and not is_delivered and message.handed is not None:
                    self._journal.adopt(message.handed[1])
                self._set_state(message, "returned" if is_delivered else "done")
        self._write_states()

    def _stop_requests(self, sender: Peer) -> None:
        """Nobody waits for what a sender asked."""
        for (peer, _), message in tuple(self._messages.items()):
            if peer == sender and message.task is not None:
                message.task.cancel()
                if message.is_request and message.handed is not None:
                    self._local.forget(*message.handed)  # if the sender comes back, it may ask again

    async def _hand_over(self, message: ReceivedMessage, envelope: Envelope, take: Take | None) -> None:
        try:
            envelope = await self._references.redeem(envelope, envelope.deadline)
            if message.is_request:
                answer = await self._local.request(envelope, observer=message, take=take)
                timeless = msgspec.structs.replace(answer, deadline=None)  # it would be on this process's clock
                message.is_storing = True
                stowed = await self._references.stow(timeless)
                self._reply(message, AnswerFrame(self._process, message.key[1], stowed))
                if self._journal is not None:
                    self._journal.took(message.key, message.attempt, message.reply)
            else:
                await self._publish(message, envelope)
        except MasError as error:
            self._failed(message, envelope, error)

    def _handed_over(self, message: ReceivedMessage, *, is_cancelled: bool) -> None:
        """The task ended, or was cancelled before it began."""
        message.task, message.is_storing = None, False
        if is_cancelled and (message.is_request or message.state == "received"):
            message.state = "unknown"
        if message.is_request or message.state not in ("queued", "delivered"):
            self._finished.add(message.key)

    async def _publish(self, message: ReceivedMessage, envelope: Envelope) -> None:
        """Into a queue; from then on the local bus has its state, unless nothing was promised."""
        may_wait = message.mode == "publish"
        if message.delivery is Delivery.BEST_EFFORT:
            await self._local.publish(envelope, wait=may_wait)
            message.state = "done"
        else:
            await self._local.publish(envelope, wait=may_wait, observer=message)
            if message.state != "received":
                return  # it was told already
            message.state = "queued"
        self._tell(message, message.attempt)

    def _changed(self, message: ReceivedMessage, event: DeliveryEvent) -> None:
        """The local bus reports an event of a message. The outcome of a request its task tells."""
        if message.state in _FINAL:
            return
        if message.is_request:
            if event in ("delivered", "nacked"):
                message.state = "delivered" if event == "delivered" else "received"
            return
        if self._journal is not None and event in ("done", "dead"):
            self._journal.took(message.key, message.attempt, None)
            self._after_write.call(partial(self._set_state, message, event))
        else:
            self._set_state(message, "queued" if event == "nacked" else event)

    def _failed(self, message: ReceivedMessage, envelope: Envelope, error: MasError) -> None:
        """Tell the error, or, where the local listeners left, that another process may take it."""
        is_untouched = message.delivery is Delivery.AT_LEAST_ONCE or message.state == "received"
        is_returned = isinstance(error, NoRoute) or (isinstance(error, Closed) and is_untouched)
        if is_returned and envelope.target not in self._routes:
            message.tries += message.state == "delivered"
            message.state = "returned"
            self._tell(message, message.attempt)
        else:
            self._reply(message, Failed(self._process, message.key[1], type(error).__name__, str(error)))

    def _reply(self, message: ReceivedMessage, frame: AnswerFrame | Failed) -> None:
        peer, ticket = message.key
        try:
            message.reply = self._codec.encode(frame)
        except Malformed as error:
            message.reply = self._codec.encode(Failed(self._process, ticket, "Malformed", str(error)))
        self._writer.reply(peer, message.reply)

    def _refuse(self, key: MessageKey, attempt: int) -> ReceivedMessage:
        """Promise not to take a message that has not come, up to this attempt."""
        message = self._messages[key] = ReceivedMessage(key, attempt, "unknown", changed=self._changed)
        self._finished.add(key)
        return message

    def _set_state(self, message: ReceivedMessage, state: RemoteState) -> None:
        message.state = state
        if state in _FINAL:
            self._finished.add(message.key)
        self._tell(message, message.attempt)

    def _tell(self, message: ReceivedMessage, attempt: int) -> None:
        """Tell the sender the reply or the state; states of one turn of the event loop go in one frame."""
        peer, ticket = message.key
        if message.reply is not None:
            self._writer.reply(peer, message.reply)
            return
        if not self._news:
            asyncio.get_running_loop().call_soon(self._write_states)
        delay_s = max(0.0, message.due - self._local.now()) if message.state == "returned" else 0.0
        self._news[peer][ticket] = MessageState(ticket, attempt, message.state, message.tries, delay_s or None)

    def _write_states(self) -> None:
        news, self._news = self._news, defaultdict(dict)
        for peer, by_ticket in news.items():
            states = list(by_ticket.values())
            for begin in range(0, len(states), _STATES):
                self._writer.reply(peer, self._codec.encode(Status(self._process, states[begin : begin + _STATES])))

    def _part_writer(self, key: MessageKey, attempt: int) -> Take:
        """Sends the parts of an answer to the requester: each once, and never asked for again."""
        peer, ticket = key

        def take(part: Envelope) -> bool:
            frame = PartFrame(self._process, ticket, attempt, part.attempt, part.sequence, part.payload)
            is_passed = self._writer.part(peer, self._codec.encode(frame))
            self._local.part_counters.passed += is_passed
            return is_passed

        return take
