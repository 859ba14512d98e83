"""One message of another process, and which of those that are over are still remembered."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator

from mas.bus.mqtt.frames import Mode, Standing
from mas.bus.mqtt.topics import Peer
from mas.bus.watch import Fate
from mas.core.messages import Delivery

Key = tuple[Peer, str]
"""A sender and its ticket."""


class Case:
    """One message of another process; follows it through the local bus.

    Args:
        key: its sender and ticket.
        attempt: the latest one seen; with the standing `unknown`, all up to it are refused.
        standing: what its sender is told; `reply` (bytes) instead, once there is an answer or an error.
        tries: how often a receiver, here or elsewhere, had it and did not finish.
        heard: told of each of its fates in the local bus.

    Attributes:
        due: it is not to be delivered again before, on the local bus's clock.
        handed: the address and the id of a message that came.
        task: hands it over; None once that is over.
        is_stowing: its answer is being put into the store.
    """

    __slots__ = (
        "_heard",
        "attempt",
        "delivery",
        "due",
        "handed",
        "is_stowing",
        "key",
        "mode",
        "reply",
        "standing",
        "task",
        "tries",
    )

    def __init__(
        self,
        key: Key,
        attempt: int,
        standing: Standing,
        *,
        heard: Callable[["Case", Fate], None],
        mode: Mode = "tell",
        delivery: Delivery | None = None,
        tries: int = 0,
    ) -> None:
        self.key = key
        self.attempt = attempt
        self.standing: Standing = standing
        self.mode = mode
        self.delivery = delivery
        self.tries = tries
        self.due = 0.0
        self.handed: tuple[str, str] | None = None
        self.reply: bytes | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_stowing = False
        self._heard = heard

    def became(self, fate: Fate, tries: int, due: float) -> None:
        """See `mas.bus.watch.Watch`."""
        self.tries, self.due = tries, due
        self._heard(self, fate)


class Over:
    """Messages that are over and may still be asked for; the oldest is forgotten first.

    Args:
        limit: how many are remembered; as many again of senders that are away and may come back.
        forget: called with each that is not any more.
    """

    def __init__(self, limit: int, forget: Callable[[Key], object]) -> None:
        self._limit = limit
        self._forget = forget
        self._present: OrderedDict[Key, None] = OrderedDict()
        self._aside: OrderedDict[Key, None] = OrderedDict()
        self._away: set[Peer] = set()

    def __iter__(self) -> Iterator[Key]:
        return iter((*self._present, *self._aside))

    def add(self, key: Key) -> None:
        """Remember a message as the latest one."""
        kept = self._aside if key[0] in self._away else self._present
        kept[key] = None
        kept.move_to_end(key)
        if len(kept) > self._limit:
            self._forget(kept.popitem(last=False)[0])

    def discard(self, key: Key) -> None:
        """It is not over any more."""
        self._present.pop(key, None)
        self._aside.pop(key, None)

    def away(self, sender: Peer) -> None:
        """A sender is away: messages of others do not push its own out."""
        self._away.add(sender)
        self._move(sender, self._present)

    def back(self, sender: Peer) -> None:
        """It came back, and will ask soon."""
        self._away.discard(sender)
        self._move(sender, self._aside)

    def forgotten(self, sender: Peer) -> None:
        """It did not come back in time."""
        self._away.discard(sender)
        for key in [key for key in self._aside if key[0] == sender]:
            del self._aside[key]
            self._forget(key)

    def _move(self, sender: Peer, kept: OrderedDict[Key, None]) -> None:
        for key in [key for key in kept if key[0] == sender]:
            del kept[key]
            self.add(key)
