"""What processes agree on through their presences: leases, and shutdown commands.

A lease says, at an address where only so many processes may listen, which of them may: never one too many. A process
first announces that it asks for a lease, and then looks who else does. Of any two, the one whose request came to the
broker later sees the other; so of those that get a lease, the latest has seen all others, and they cannot be too many.
Where two see each other, the older process goes first: its request counts as a lease, and the older one waits until the
younger ones, which may not have seen it, have a lease or have withdrawn.

A shutdown command names the processes that are to stop, in the presence of the process that commands it. A presence
stays with the broker while its process is on the bus. So a process that is just connecting again finds the command when
it is back; found several times it is one command; and a process that is started later has another name. A process that
has stopped says so by leaving. The broker vouches for whose presence it is; a process obeys the principals that its own
presence names.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from mas.bus.mqtt.bus import MqttBus
from mas.bus.mqtt.topics import Peer
from mas.core.errors import NoRoute
from mas.core.naming import did_you_mean

_LEASE_POLL_S = 0.05


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
            await asyncio.sleep(_LEASE_POLL_S)
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


_STOP_POLL_S = 0.1
_BACK_S = 30.0
"""How long a process that vanished may take to come back and stop in good order."""


def accept_shutdown(bus: MqttBus, principal: str) -> None:
    """Announce that this process stops at the command of a principal."""
    bus.announce(msgspec.structs.replace(bus.presence(), stops_for=(*bus.presence().stops_for, principal)))


def shutdown_command(bus: MqttBus) -> bool | None:
    """Whether this process is to stop at once (True), or when nothing is in flight; None: there is no command."""
    accepted, name = bus.presence().stops_for, bus.me.process
    commands = [
        presence.stops[name]
        for peer, presence in bus.processes().items()
        if peer.principal in accepted and name in presence.stops
    ]
    return any(commands) if commands else None


async def shut_down(bus: MqttBus, note: Callable[[str], None], *, at_once: bool) -> None:
    """Command all processes that accept it of this one's principal to stop, and wait until they have.

    Those that come to the bus afterwards are not meant.

    Args:
        note: called with what happens, in words.
        at_once: do not let them finish what is in flight.

    Raises:
        NoRoute: no process accepts it; or one that vanished did not come back within half a minute. Closed: the bus was
        closed.
    """
    await bus.flush()
    stopping = [peer for peer, presence in bus.processes().items() if bus.me.principal in presence.stops_for]
    if not stopping:
        raise NoRoute(_nobody(bus))
    stops = bus.presence().stops | {peer.process: at_once for peer in stopping}
    bus.announce(msgspec.structs.replace(bus.presence(), stops=stops))
    note(f"told to end: {_names(stopping)}")
    since = dict.fromkeys(stopping, bus.now())
    while since:
        await asyncio.sleep(_STOP_POLL_S)
        await bus.flush()  # raises if the bus was closed meanwhile
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


def _nobody(bus: MqttBus) -> str:
    accepted = {principal for presence in bus.processes().values() for principal in presence.stops_for}
    possible = (
        did_you_mean(bus.me.principal, accepted) if accepted else "No agent is on it now: there is no process to end."
    )
    return f"no process on this bus ends on the word of {bus.me.principal!r}. {possible}"


def _names(peers: list[Peer]) -> str:
    return ", ".join(f"{peer.principal} ({peer.process})" for peer in peers)
