"""The addresses that one process listens at, and the presence by which it announces them to the others."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from mas.bus.mqtt.connection import Connection
from mas.bus.mqtt.presence import Peers, Presence
from mas.bus.mqtt.topics import Peer, Topics
from mas.core.errors import Denied
from mas.core.naming import listed


class Announcer:
    """Publishes the presence of this process, retained.

    Args:
        away_s: how long it may be gone and come back with what it had sent; 0: it does not come back.
    """

    def __init__(self, me: Peer, connection: Connection, *, topics: Topics, peers: Peers, away_s: float) -> None:
        self._me, self._connection = me, connection
        self._topic = topics.presence(me)
        self._peers = peers
        self._presence = Presence(since=time.time(), addresses={}, away_s=away_s)
        self._is_closed = False

    def publish(self) -> None:
        """Announce it, for instance on a new connection."""
        if not self._is_closed:
            self._peers.take(self._me, self._presence)
            self._connection.publish(self._topic, msgspec.json.encode(self._presence), retain=True)

    def announce(self, presence: Presence) -> None:
        """Announce another presence; the addresses and `away_s` stay as they are."""
        before = self._presence
        self._presence = msgspec.structs.replace(
            presence, addresses=before.addresses, draining=before.draining, away_s=before.away_s
        )
        self.publish()

    def listen(self, addresses: dict[str, str], draining: tuple[str, ...]) -> None:
        """Announce other addresses."""
        self._presence = msgspec.structs.replace(self._presence, addresses=addresses, draining=draining)
        self.publish()

    async def leave(self, patience_s: float) -> None:
        """Announce that this process leaves, and remove what was retained; wait for the broker for a while."""
        self._is_closed = True
        leaving = Presence(since=self._presence.since, addresses={}, is_leaving=True, away_s=self._presence.away_s)
        published = asyncio.Event()
        self._connection.publish(self._topic, msgspec.json.encode(leaving))
        if self._connection.publish(self._topic, b"", retain=True, acknowledge=lambda _: published.set()):
            waiting = asyncio.create_task(published.wait(), name="mqtt leaving")
            await asyncio.wait([waiting], timeout=patience_s)
            waiting.cancel()


class Route(msgspec.Struct, eq=False):
    """One address.

    Attributes:
        readers: who reads there, once for each subscription.
        is_subscribed: the broker was asked for its messages.
        turn: held by the subscription that comes or goes; users: those that want it or have it.
    """

    readers: list[str] = msgspec.field(default_factory=list)
    is_subscribed: bool = False
    turn: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)
    users: int = 0


class Routes:
    """What this process listens at.

    At one address subscriptions come and go one after the other: the first to come must not rely on what the last to
    go is about to end at the broker.

    Args:
        password: of this process's principal, None: the broker asks for none.
        peers: who reads at an address, in all processes.
        away_s: see `Announcer`.

    Attributes:
        announcer: tells the others when the first subscription of an address came or its last one went.
    """

    def __init__(
        self, me: Peer, connection: Connection, *, topics: Topics, password: str | None, peers: Peers, away_s: float
    ) -> None:
        self.announcer = Announcer(me, connection, topics=topics, peers=peers, away_s=away_s)
        self._connection, self._topics, self._password = connection, topics, password
        self._peers = peers
        self._routes: dict[str, Route] = {}
        self._draining: list[tuple[str, str]] = []
        self._is_closed = False

    def __contains__(self, address: object) -> bool:
        return isinstance(address, str) and address in self._routes and bool(self._routes[address].readers)

    def close(self) -> None:
        """The connection ends: what ends from now on need not be announced."""
        self._is_closed = True

    async def listen(self, address: str, reader: str) -> None:
        """Take messages to an address from now on.

        Raises:
            Denied: the broker does not let this principal listen there, or a process is there with another reader.
        """
        async with self._turn(address) as route:
            others = self._peers.readers(address) - {reader}
            if others:
                raise Denied(f"{reader!r} cannot listen at {address!r}, where {listed(others)} reads")
            route.readers.append(reader)
            if len(route.readers) > 1:
                return
            self._announce()
            route.is_subscribed = True
            try:
                await self._connection.subscribe(self._filter(address), qos=0)
            except BaseException:  # a cancelled call, too, must not stay among the readers
                self._end_one(address, route)
                raise

    async def leave(self, address: str) -> None:
        """Take one subscription's messages no more; the others' and the broker's, if it was not the last, go on."""
        route = self._routes[address]
        try:
            async with self._turn(address):
                if len(route.readers) == 1 and not self._is_closed:
                    route.is_subscribed = False
                    await self._connection.unsubscribe(self._filter(address))
        finally:
            self._end_one(address, route)

    async def withdraw(self, address: str) -> None:
        """As `leave`, but until it is `drained` the address is announced, for queries after what is in flight there."""
        self._draining.append((address, self._routes[address].readers[0]))
        await self.leave(address)

    def drained(self, address: str) -> None:
        """One subscription that took nothing new is over."""
        self._draining.remove(next(entry for entry in self._draining if entry[0] == address))
        self._announce()

    def _announce(self) -> None:
        if self._is_closed:
            return
        listening = {address: route.readers[0] for address, route in self._routes.items() if route.readers}
        draining = dict.fromkeys(address for address, _ in self._draining if address not in self)
        self.announcer.listen(dict(self._draining) | listening, tuple(draining))

    def _filter(self, address: str) -> str:
        return self._topics.listen(address, self._password)

    def _end_one(self, address: str, route: Route) -> None:
        route.readers.pop()
        if route.readers:
            return
        if route.is_subscribed and not self._is_closed:  # it was cancelled on its way: its reply is not awaited
            route.is_subscribed = False
            self._connection.forget(self._filter(address))
        self._announce()
        self._tidy(address, route)

    def _tidy(self, address: str, route: Route) -> None:
        if not route.users and not route.readers:
            self._routes.pop(address, None)

    @asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[Route]:
        route = self._routes.setdefault(address, Route())
        route.users += 1
        try:
            async with route.turn:
                yield route
        finally:
            route.users -= 1
            self._tidy(address, route)
