"""What one process says to the others: frames, put on the line to the broker."""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from mas.bus.mqtt.client import Acknowledge
from mas.bus.mqtt.frames import Cancel, Codec, Find, Got, Send
from mas.bus.mqtt.outgoing import Post
from mas.bus.mqtt.topics import Peer, Topics

_FINDS = 500


class Line(Protocol):
    """What carries bytes to the broker; see `mas.bus.mqtt.connection.Link`."""

    @property
    def is_up(self) -> bool: ...

    @property
    def is_behind(self) -> bool: ...

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        remaining_s: float | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> bool: ...


class Speaker:
    """Makes the frames of one process and publishes them.

    Args:
        me: this process.
        clock: seconds that deadlines refer to.
    """

    def __init__(self, me: Peer, *, line: Line, codec: Codec, topics: Topics, clock: Callable[[], float]) -> None:
        self.me = me
        self.line = line
        self._codec = codec
        self._topics = topics
        self._clock = clock
        self._cancels: dict[str, set[Peer]] = {}

    def check(self, post: Post) -> None:
        """Raises Malformed: the message cannot travel."""
        self._encode(post)

    def send(self, post: Post, acknowledge: Acknowledge) -> bool:
        """Give a message to its address; False: there is no connection."""
        return self.line.publish(
            self._topics.to(post.envelope.target, self.me.principal),
            self._encode(post),
            remaining_s=self._remaining_s(post),
            acknowledge=acknowledge,
        )

    def ask(self, peer: Peer, tickets: list[tuple[str, int]], acknowledge: Acknowledge) -> None:
        """Ask a process what became of (ticket, attempt); of none: whether it is there."""
        for begin in range(0, max(1, len(tickets)), _FINDS):
            self._sure(peer, Find(self.me.process, tickets[begin : begin + _FINDS]), acknowledge)

    def cancel(self, ticket: str, peers: set[Peer]) -> None:
        """Tell these that nobody waits for a message any more; again after a reconnection, until the broker has it."""
        self._cancels[ticket] = peers
        for peer in tuple(peers):
            self._sure(peer, Cancel(self.me.process, ticket), partial(self._cancelled, ticket, peer))

    def cancel_again(self) -> None:
        """The connection is new: tell again what may not have reached the broker."""
        for ticket, peers in tuple(self._cancels.items()):
            self.cancel(ticket, peers)

    def say(self, peer: Peer, frame: bytes) -> None:
        """Say what the other process asks for again if it does not come."""
        self.line.publish(self._topics.back(peer, self.me.principal), frame, qos=0)

    def pass_on(self, peer: Peer, frame: bytes) -> bool:
        """Say what need not arrive; False: there is no connection, or too much waits for it."""
        topic = self._topics.back(peer, self.me.principal)
        return not self.line.is_behind and self.line.publish(topic, frame, qos=0)

    def got(self, peer: Peer, tickets: list[str]) -> None:
        """Tell a process that these answers came."""
        self.say(peer, self._codec.encode(Got(self.me.process, tickets)))

    def echo(self, token: str, acknowledge: Acknowledge) -> None:
        """Say something to oneself, which comes back behind all that the broker had for this process."""
        self._sure(self.me, Got(self.me.process, [token]), acknowledge)

    def _sure(self, peer: Peer, frame: Find | Cancel | Got, acknowledge: Acknowledge) -> None:
        topic = self._topics.back(peer, self.me.principal)
        self.line.publish(topic, self._codec.encode(frame), acknowledge=acknowledge)

    def _cancelled(self, ticket: str, peer: Peer, code: int) -> None:
        peers = self._cancels.get(ticket, set())
        peers.discard(peer)
        if not peers:
            self._cancels.pop(ticket, None)

    def _remaining_s(self, post: Post) -> float | None:
        return None if post.deadline is None else max(0.0, post.deadline - self._clock())

    def _encode(self, post: Post) -> bytes:
        frame = Send(
            process=self.me.process,
            ticket=post.ticket,
            attempt=post.attempt,
            mode=post.mode,
            remaining_s=self._remaining_s(post),
            eager=post.lane is not None,
            is_streamed=post.stream is not None,
            envelope=msgspec.structs.replace(post.envelope, deadline=None),
            tries=post.tries,
        )
        return self._codec.encode(frame)
