"""One message of another process, and which of those that are finished are still remembered."""

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from mas.bus.in_flight import DeliveryEvent, Recent
from mas.bus.mqtt.frames import Mode, RemoteState
from mas.bus.mqtt.topics import Peer
from mas.core.messages import Delivery

MessageKey = tuple[Peer, str]
"""A sender and its ticket."""


class ReceivedMessage(msgspec.Struct, eq=False):
    """One message of another process; observes it in the local bus.

    Attributes:
        key: its sender and ticket.
        attempt: the latest one seen; in the state `unknown` all up to it are refused.
        state: the state that is sent to its sender; `reply` (bytes) instead, once there is an answer or an error.
        tries: how often a receiver, here or elsewhere, had it and did not finish.
        changed: called with each of its events in the local bus.
        due: it is not to be delivered again before, on the local bus's clock.
        handed: the address and the id of a message that came.
        task: gives it to the local bus; None once that is over.
        is_storing: its answer is being put into the store of long payloads.
    """

    key: MessageKey
    attempt: int
    state: RemoteState
    changed: Callable[["ReceivedMessage", DeliveryEvent], None]
    mode: Mode = "publish"
    delivery: Delivery | None = None
    tries: int = 0
    due: float = 0.0
    handed: tuple[str, str] | None = None
    reply: bytes | None = None
    task: asyncio.Task[None] | None = None
    is_storing: bool = False

    __repr__ = object.__repr__  # an event loop shows what a callback was given, and answers may be private

    @property
    def is_request(self) -> bool:
        """Its sender waits for an answer."""
        return self.mode == "request"

    def observe(self, event: DeliveryEvent, tries: int, due: float) -> None:
        self.tries, self.due = tries, due
        self.changed(self, event)


class FinishedMessages:
    """Messages that are finished and may still be queried for; the oldest is forgotten first.

    Args:
        limit: how many are remembered; as many again of senders that are away and may come back.
        forget: called with each that is not remembered any more.
    """

    def __init__(self, limit: int, forget: Callable[[MessageKey], object]) -> None:
        self._forget = forget
        self._of_present: Recent[MessageKey] = Recent(limit)
        self._of_away: Recent[MessageKey] = Recent(limit)
        self._away: set[Peer] = set()

    def __iter__(self) -> Iterator[MessageKey]:
        return iter((*self._of_present, *self._of_away))

    def add(self, key: MessageKey) -> None:
        """Remember a message as the latest one."""
        kept = self._of_away if key[0] in self._away else self._of_present
        kept.pop(key, None)
        forgotten = kept.add(key)
        if forgotten is not None:
            self._forget(forgotten)

    def discard(self, key: MessageKey) -> None:
        """It is not finished any more."""
        self._of_present.pop(key, None)
        self._of_away.pop(key, None)

    def away(self, sender: Peer) -> None:
        """A sender is away: messages of others do not push its own out."""
        self._away.add(sender)
        self._move(sender, self._of_present)

    def back(self, sender: Peer) -> None:
        """It came back, and will query soon."""
        self._away.discard(sender)
        self._move(sender, self._of_away)

    def forgotten(self, sender: Peer) -> None:
        """It did not come back in time."""
        self._away.discard(sender)
        for key in [key for key in self._of_away if key[0] == sender]:
            del self._of_away[key]
            self._forget(key)

    def _move(self, sender: Peer, kept: Recent[MessageKey]) -> None:
        for key in [key for key in kept if key[0] == sender]:
            del kept[key]
            self.add(key)
