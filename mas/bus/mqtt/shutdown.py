"""Telling processes to end, by name and on a card.

A card stays with the broker while its process is on the bus. So a process that is just connecting again finds the order
when it is back, however often it looks it is one order, and a process that is started later has another name. Who has
ended says so by leaving. The broker vouches for whose card it is; a process obeys the principals that its own card
names.
"""

import asyncio
from collections.abc import Callable

import msgspec

from mas.bus.mqtt.bus import MqttBus
from mas.bus.mqtt.topics import Peer
from mas.core.errors import NoRoute
from mas.core.naming import did_you_mean

_LOOK_S = 0.1
_BACK_S = 30.0
"""How long a process that vanished may take to come back and end in good order."""


def obey(bus: MqttBus, principal: str) -> None:
    """Say that this process ends on the word of a principal."""
    bus.show(msgspec.structs.replace(bus.card(), obeys=(*bus.card().obeys, principal)))


def ordered(bus: MqttBus) -> bool | None:
    """Whether this process is told to end at once (True), or when it has nothing more in hand; None: it is not told."""
    obeyed, name = bus.card().obeys, bus.me.process
    orders = [
        card.dismisses[name]
        for peer, card in bus.processes().items()
        if peer.principal in obeyed and name in card.dismisses
    ]
    return any(orders) if orders else None


async def dismiss(bus: MqttBus, note: Callable[[str], None], *, at_once: bool) -> None:
    """Tell all processes that obey this one's principal to end, and wait until they have.

    Those that come to the bus afterwards are not told.

    Args:
        at_once: do not let them finish what they have in hand.

    Raises:
        NoRoute: nobody obeys; or one that vanished did not come back within half a minute. Closed: the bus was closed.
    """
    await bus.flush()
    told = [peer for peer, card in bus.processes().items() if bus.me.principal in card.obeys]
    if not told:
        obeyed = {principal for card in bus.processes().values() for principal in card.obeys}
        possible = (
            did_you_mean(bus.me.principal, obeyed) if obeyed else "No agent is on it now: there is nobody to end."
        )
        raise NoRoute(f"no process on this bus ends on the word of {bus.me.principal!r}. {possible}")
    orders = bus.card().dismisses | {peer.process: at_once for peer in told}
    bus.show(msgspec.structs.replace(bus.card(), dismisses=orders))
    note(f"told to end: {_names(told)}")
    since = dict.fromkeys(told, bus.now())
    while since:
        await asyncio.sleep(_LOOK_S)
        await bus.flush()  # a bus that was closed meanwhile says so
        there, vanished = bus.processes(), bus.vanished()
        for peer in tuple(since):
            if peer in there:
                since[peer] = bus.now()
            elif peer not in vanished:
                del since[peer]
                note(f"has ended: {_names([peer])}")
            elif bus.now() - since[peer] > _BACK_S:
                raise NoRoute(
                    f"{_names([peer])} vanished, and did not come back within {_BACK_S:g} s to be told; if it lives, "
                    "tell it again"
                )


def _names(peers: list[Peer]) -> str:
    return ", ".join(f"{peer.principal} ({peer.process})" for peer in peers)
