"""Which processes listen at an address where only so many may: decided on the cards, and never by two alike.

A process first shows that it wants to listen, and then looks. Of any two, the one whose claim came to the broker later
sees the other; so of those that get in, the latest has seen all others, and they cannot be too many. Where two see each
other, the older one goes first: an older claim counts as a place taken, and whoever is older waits until the younger
ones, which may not have seen it, have got in or given way.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from mas.bus.mqtt.bus import MqttBus
from mas.bus.mqtt.topics import Peer

_LOOK_S = 0.05


@asynccontextmanager
async def claim(bus: MqttBus, address: str, *, most: int) -> AsyncIterator[tuple[Peer, ...]]:
    """Those that go first at an address. If they are `most` or more, this process must not listen there; else it should
    begin to while this is entered: afterwards its claim is gone.

    The age of a process is (`Card.since`, its name). A process that vanished counts until it is given up (`absent_s`).

    Raises:
        Closed: the bus was closed.
    """
    bus.show(msgspec.structs.replace(bus.card(), claims=(*bus.card().claims, address)))
    try:
        await bus.flush()
        while (first := _first(bus, address, most)) is None:
            await asyncio.sleep(_LOOK_S)
            await bus.flush()  # a bus that was closed meanwhile says so
        yield first
    finally:
        bus.show(msgspec.structs.replace(bus.card(), claims=tuple(one for one in bus.card().claims if one != address)))


def _first(bus: MqttBus, address: str, most: int) -> tuple[Peer, ...] | None:
    """Those that go first; None: it depends on younger ones, which are deciding now."""
    mine = (bus.card().since, bus.me.process)
    listening: list[Peer] = []
    older: list[Peer] = []
    younger: list[Peer] = []
    for peer, card in bus.processes().items():
        if peer == bus.me:
            continue
        if card.takes(address):
            listening.append(peer)
        elif address in card.claims:
            (older if (card.since, peer.process) < mine else younger).append(peer)
    is_settled = len(listening) + len(older) >= most or len(listening) + len(older) + len(younger) < most
    return (*listening, *older) if is_settled else None
