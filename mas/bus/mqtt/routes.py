"""The addresses that one process listens at: what the broker and the other processes know of its subscriptions."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mas.bus.mqtt.connection import Link
from mas.bus.mqtt.topics import Topics
from mas.core.errors import Denied
from mas.core.naming import listed


class Place:
    """One address.

    Attributes:
        readers: who reads there, once for each subscription.
        is_heard: the broker was asked for its messages.
        turn: held by the subscription that comes or goes; users: those that want it or have it.
    """

    __slots__ = ("is_heard", "readers", "turn", "users")

    def __init__(self) -> None:
        self.readers: list[str] = []
        self.is_heard = False
        self.turn = asyncio.Lock()
        self.users = 0


class Places:
    """What this process listens at.

    At one address subscriptions come and go one after the other: the first to come must not rely on what the last to
    go is about to end at the broker.

    Args:
        password: of this process's principal, None: the broker asks for none.
        readers: the principals that read at an address, in all processes.
        changed: called when the first subscription of an address came or its last one went.
    """

    def __init__(
        self,
        link: Link,
        *,
        topics: Topics,
        password: str | None,
        readers: Callable[[str], set[str]],
        changed: Callable[[], None],
    ) -> None:
        self._link = link
        self._topics = topics
        self._password = password
        self._readers = readers
        self._changed = changed
        self._places: dict[str, Place] = {}
        self._draining: list[tuple[str, str]] = []
        self._is_closed = False

    def __contains__(self, address: str) -> bool:
        place = self._places.get(address)
        return place is not None and bool(place.readers)

    def addresses(self) -> dict[str, str]:
        """What is listened at, also by those that take nothing new -> who reads there."""
        return dict(self._draining) | {
            address: place.readers[0] for address, place in self._places.items() if place.readers
        }

    def draining(self) -> tuple[str, ...]:
        """Where nothing new is taken, and something is in hand."""
        return tuple(dict.fromkeys(address for address, _ in self._draining if address not in self))

    def close(self) -> None:
        """The connection ends: what goes from now on need not be told."""
        self._is_closed = True

    async def listen(self, address: str, reader: str) -> None:
        """Take messages to an address from now on.

        Raises:
            Denied: the broker does not let this principal listen there, or a process is there with another reader.
        """
        async with self._turn(address) as place:
            others = self._readers(address) - {reader}
            if others:
                raise Denied(f"{reader!r} cannot listen at {address!r}, where {listed(others)} reads")
            place.readers.append(reader)
            if len(place.readers) > 1:
                return
            self._changed()
            place.is_heard = True
            try:
                await self._link.subscribe(self._filter(address), qos=0)
            except BaseException:
                self._unlist(address, place)
                raise

    async def leave(self, address: str) -> None:
        """Take one subscription's messages no more; the others' and the broker's, if it was not the last, go on."""
        place = self._places[address]
        try:
            async with self._turn(address):
                if len(place.readers) == 1 and not self._is_closed:
                    place.is_heard = False
                    await self._link.unsubscribe(self._filter(address))
        finally:
            self._unlist(address, place)

    async def withdraw(self, address: str) -> None:
        """As `leave`, but until it is `drained` the address is shown, for whoever asks after what is in hand there."""
        self._draining.append((address, self._places[address].readers[0]))
        await self.leave(address)

    def drained(self, address: str) -> None:
        """One subscription that took nothing new is over."""
        self._draining.remove(next(one for one in self._draining if one[0] == address))
        if not self._is_closed:
            self._changed()

    def _filter(self, address: str) -> str:
        return self._topics.listen(address, self._password)

    def _unlist(self, address: str, place: Place) -> None:
        """One subscription is over."""
        place.readers.pop()
        if place.readers:
            return
        if not self._is_closed:
            if place.is_heard:  # it was cancelled on its way: nobody waits for the broker
                place.is_heard = False
                self._link.forget(self._filter(address))
            self._changed()
        self._tidy(address, place)

    def _tidy(self, address: str, place: Place) -> None:
        if not place.users and not place.readers:
            self._places.pop(address, None)

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[Place]:
        place = self._places.setdefault(address, Place())
        place.users += 1
        try:
            async with place.turn:
                yield place
        finally:
            place.users -= 1
            self._tidy(address, place)
