"""Encodes the frames of one process and gives them to the transport, and waits for frames to itself to come back."""

import asyncio
import secrets
from collections.abc import Callable
from functools import partial

import msgspec

from mas.bus.mqtt.client import REFUSED, Acknowledge
from mas.bus.mqtt.connection import Connection
from mas.bus.mqtt.frames import Cancel, Codec, Confirm, Send, StateQuery
from mas.bus.mqtt.outgoing import OutgoingMessage
from mas.bus.mqtt.topics import Peer, Topics
from mas.core.errors import Closed, Denied

_QUERIES = 500


class Echoes:
    """Round trips through the broker: when a frame to itself is back, all that was sent here before has come."""

    def __init__(self, writer: "FrameWriter") -> None:
        self._writer = writer
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._first: str | None = None
        self._is_closed = False

    @property
    def has_caught_up(self) -> bool:
        """The first echo of this connection is back, and with it the presence of every process."""
        return self._first is None

    async def round_trip(self) -> None:
        """Wait for an echo, of another connection if this one breaks.

        Raises:
            Closed: the bus was closed. Denied: the broker does not let this process publish to itself.
        """
        while not self._is_closed:
            token = secrets.token_hex(8)
            echo = self._waiting[token] = asyncio.get_running_loop().create_future()
            try:
                self._writer.echo(token, partial(self._published, echo))
                if await echo:
                    return
            finally:
                del self._waiting[token]
        raise Closed("the bus is closed")

    def connected(self) -> None:
        """The connection is new: echoes of the one before do not come any more."""
        self._first = secrets.token_hex(8)
        self._writer.echo(self._first, lambda _: None)
        self._wake()

    def arrived(self, token: str) -> bool:
        """A frame to itself is back; True: it is the first one of this connection."""
        if token == self._first:
            self._first = None
            return True
        if token in self._waiting:
            _resolve(self._waiting[token], True)
        return False

    def close(self) -> None:
        """Whoever waits gets Closed."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        for echo in self._waiting.values():
            _resolve(echo, False)

    def _published(self, echo: "asyncio.Future[bool]", code: int) -> None:
        if code >= REFUSED and not echo.done():
            echo.set_exception(self._writer.denied_echo())


class FrameWriter:
    """Writes the frames of one process.

    Args:
        me: this process.
        clock: seconds that deadlines refer to.

    Attributes:
        echoes: frames of this process to itself.
    """

    def __init__(
        self, me: Peer, *, transport: Connection, codec: Codec, topics: Topics, clock: Callable[[], float]
    ) -> None:
        self.me, self.transport, self._codec, self._topics = me, transport, codec, topics
        self._clock = clock
        self._cancels: dict[str, set[Peer]] = {}
        self.echoes = Echoes(self)

    def check(self, message: OutgoingMessage) -> None:
        """Raises Malformed: the message cannot travel."""
        self._encode(message)

    def send(self, message: OutgoingMessage, acknowledge: Acknowledge) -> bool:
        """Publish a message to its address; False: there is no connection."""
        return self.transport.publish(
            self._topics.to(message.envelope.target, self.me.principal),
            self._encode(message),
            remaining_s=self._remaining_s(message),
            acknowledge=acknowledge,
        )

    def query(self, peer: Peer, tickets: list[tuple[str, int]], acknowledge: Acknowledge) -> None:
        """Ask a process for the states of (ticket, attempt); of none: whether it is there."""
        for begin in range(0, max(1, len(tickets)), _QUERIES):
            self._write(peer, StateQuery(self.me.process, tickets[begin : begin + _QUERIES]), acknowledge)

    def cancel(self, ticket: str, peers: set[Peer]) -> None:
        """Tell these that a message is not awaited any more; again after a reconnection, until the broker has it."""
        self._cancels[ticket] = peers
        for peer in tuple(peers):
            self._write(peer, Cancel(self.me.process, ticket), partial(self._cancelled, ticket, peer))

    def cancel_again(self) -> None:
        """The connection is new: repeat the cancellations that may not have reached the broker."""
        for ticket, peers in tuple(self._cancels.items()):
            self.cancel(ticket, peers)

    def reply(self, peer: Peer, frame: bytes) -> None:
        """Send what the other process queries for if it does not come."""
        self.transport.publish(self._topics.back(peer, self.me.principal), frame, qos=0)

    def part(self, peer: Peer, frame: bytes) -> bool:
        """Send what need not arrive; False: there is no connection, or too much waits for it."""
        topic = self._topics.back(peer, self.me.principal)
        return not self.transport.is_behind and self.transport.publish(topic, frame, qos=0)

    def confirm(self, peer: Peer, tickets: list[str]) -> None:
        """Tell a process that its answers with these tickets came."""
        self.reply(peer, self._codec.encode(Confirm(self.me.process, tickets)))

    def echo(self, token: str, acknowledge: Acknowledge) -> None:
        """Send a frame to this process itself; it comes back behind all that the broker had for this process."""
        self._write(self.me, Confirm(self.me.process, [token]), acknowledge)

    def denied_echo(self) -> Denied:
        """The error where the broker does not let this process publish to itself, or receive that."""
        return Denied(
            f"the broker does not let {self.me.principal!r} publish to itself: its access list must allow writing and "
            f"reading {self._topics.back(self.me, self.me.principal)!r}"
        )

    def _write(self, peer: Peer, frame: StateQuery | Cancel | Confirm, acknowledge: Acknowledge) -> None:
        topic = self._topics.back(peer, self.me.principal)
        self.transport.publish(topic, self._codec.encode(frame), acknowledge=acknowledge)

    def _cancelled(self, ticket: str, peer: Peer, code: int) -> None:
        peers = self._cancels.get(ticket, set())
        peers.discard(peer)
        if not peers:
            self._cancels.pop(ticket, None)

    def _remaining_s(self, message: OutgoingMessage) -> float | None:
        return None if message.deadline is None else max(0.0, message.deadline - self._clock())

    def _encode(self, message: OutgoingMessage) -> bytes:
        frame = Send(
            process=self.me.process,
            ticket=message.ticket,
            attempt=message.attempt,
            mode=message.mode,
            remaining_s=self._remaining_s(message),
            eager=message.order_key is not None,
            is_streamed=message.stream is not None,
            envelope=msgspec.structs.replace(message.envelope, deadline=None),
            tries=message.tries,
        )
        return self._codec.encode(frame)


def _resolve(future: "asyncio.Future[bool]", outcome: bool) -> None:
    if not future.done():
        future.set_result(outcome)
