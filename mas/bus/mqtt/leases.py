"""Leases: at an address where only so many processes may listen, which of them may. Never one too many.

A process first announces that it asks for a lease, and then looks who else does. Of any two, the one whose request came
to the broker later sees the other; so of those that get a lease, the latest has seen all others, and they cannot be too
many. Where two see each other, the older process goes first: its request counts as a lease, and the older one waits
until the younger ones, which may not have seen it, have a lease or have withdrawn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from mas.bus.mqtt.bus import MqttBus
from mas.bus.mqtt.topics import Peer

_POLL_S = 0.05


@asynccontextmanager
async def ask_for_lease(bus: MqttBus, address: str, *, most: int) -> AsyncIterator[tuple[Peer, ...]]:
    """The processes that go first at an address. If they are `most` or more, this process must not listen there.

    Else it should begin to inside: afterwards its request is withdrawn.

    The age of a process is (`Presence.since`, its name). A process that vanished counts until it is given up
    (`absent_s`).

    Raises:
        Closed: the bus was closed.
    """
    bus.announce(msgspec.structs.replace(bus.presence(), leases=(*bus.presence().leases, address)))
    try:
        await bus.flush()
        while (first := _first(bus, address, most)) is None:
            await asyncio.sleep(_POLL_S)
            await bus.flush()  # raises if the bus was closed meanwhile
        yield first
    finally:
        kept = tuple(other for other in bus.presence().leases if other != address)
        bus.announce(msgspec.structs.replace(bus.presence(), leases=kept))


def _first(bus: MqttBus, address: str, most: int) -> tuple[Peer, ...] | None:
    """The processes that go first; None: it depends on younger ones, which are deciding now."""
    mine = (bus.presence().since, bus.me.process)
    listening: list[Peer] = []
    older: list[Peer] = []
    younger: list[Peer] = []
    for peer, presence in bus.processes().items():
        if peer == bus.me:
            continue
        if presence.takes(address):
            listening.append(peer)
        elif address in presence.leases:
            (older if (presence.since, peer.process) < mine else younger).append(peer)
    is_settled = len(listening) + len(older) >= most or len(listening) + len(older) + len(younger) < most
    return (*listening, *older) if is_settled else None
