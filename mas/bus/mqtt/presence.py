"""What a process says of itself, and which of these presences are believed.

The broker vouches for whose presence it is, and for nothing in it. A principal that was taken over can publish many
presences, and long ones, and they stay with the broker; here they cost bounded memory and change nothing for others.
"""

import logging
from collections import defaultdict
from collections.abc import Callable
from typing import Annotated

import msgspec

from mas.bus.mqtt.topics import Peer
from mas.core.errors import Malformed

Owns = Callable[[str, str], bool]
"""Whether a principal, the first, may listen at an address, the second."""
PRINCIPALS = 64
"""So many may have presences of `max_presence_bytes` each; then there is no room for more."""
_log = logging.getLogger(__name__)


def any_address(principal: str, address: str) -> bool:
    """Every principal may listen at every address, as far as the broker lets it."""
    return True


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of itself. The broker vouches for its principal, as the topic's; the rest is its claim.

    Attributes:
        since: when it came to the bus, in seconds since 1970.
        addresses: what it listens at -> the principal that reads there.
        is_leaving: it leaves now and takes nothing more.
        away_s: how long it may be gone and come back with what it had sent; 0: it does not.
        draining: those of the addresses where it takes nothing new and has something in flight.
        leases: addresses that it asks to listen at, where only so many may; see `mas.bus.mqtt.leases`.
        stops_for: principals whose shutdown commands it carries out; see `mas.bus.mqtt.shutdown`.
        stops: processes that it commands to stop -> whether at once, instead of when nothing is in flight.
    """

    since: float
    addresses: dict[str, str]
    is_leaving: bool = False
    away_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    draining: tuple[str, ...] = ()
    leases: tuple[str, ...] = ()
    stops_for: tuple[str, ...] = ()
    stops: dict[str, bool] = {}

    def takes(self, address: str) -> bool:
        """Whether it listens at an address and takes what comes."""
        return address in self.addresses and address not in self.draining


def read_presence(payload: bytes) -> Presence | None:
    """The presence in a payload; None for the empty one, which removes what was retained.

    Raises:
        Malformed: it is no presence.
    """
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload, type=Presence)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"not a presence: {str(error)[:300]}") from error


class PresenceFilter:
    """Decides which presences are believed and counts those that are not; each principal's first one is logged.

    Args:
        owns: whether a principal may listen at an address.
        most: processes of one principal; most_bytes: of all their presences together.
    """

    def __init__(self, owns: Owns, *, most: int, most_bytes: int) -> None:
        self.refused = 0
        self._owns = owns
        self._most = most
        self._most_bytes = most_bytes
        self._bytes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._total = 0
        self._logged: set[str] = set()

    def read(self, peer: Peer, payload: bytes) -> Presence | None:
        """The presence in a payload; None: it is refused, and what was known of the process stays.

        Raises:
            Malformed: it is no presence.
        """
        reason = self._too_much(peer, len(payload))
        presence = None if reason else read_presence(payload)
        if presence is not None:
            reason = self._not_its(peer, presence)
        if reason:
            self._refuse(peer, reason)
            return None
        if presence is not None and not presence.is_leaving:
            self._total += len(payload) - self._bytes[peer.principal].get(peer.process, 0)
            self._bytes[peer.principal][peer.process] = len(payload)
        return presence

    def forget(self, peer: Peer) -> None:
        """A process is gone."""
        sizes = self._bytes.get(peer.principal)
        if sizes is not None:
            self._total -= sizes.pop(peer.process, 0)
            if not sizes:
                del self._bytes[peer.principal]

    def _too_much(self, peer: Peer, size: int) -> str:
        sizes = self._bytes.get(peer.principal, {})
        before = sizes.get(peer.process, 0)
        if peer.process not in sizes and len(sizes) >= self._most:
            return f"it has {self._most:,} processes on the bus already (max_processes)"
        if sum(sizes.values()) - before + size > self._most_bytes:
            return f"its presences would be longer than {self._most_bytes:,} bytes together (max_presence_bytes)"
        if self._total - before + size > PRINCIPALS * self._most_bytes:
            return f"all presences would be longer than {PRINCIPALS * self._most_bytes:,} bytes (max_presence_bytes)"
        return ""

    def _not_its(self, peer: Peer, presence: Presence) -> str:
        for address in (*presence.addresses, *presence.draining, *presence.leases):
            if not self._owns(peer.principal, address):
                return f"it claims the address {address[:200]!r}, which is another's"
        return ""

    def _refuse(self, peer: Peer, reason: str) -> None:
        self.refused += 1
        if peer.principal not in self._logged and len(self._logged) < PRINCIPALS:
            self._logged.add(peer.principal)
            _log.warning(
                "presences of %.200r are ignored: %s. Somebody else may have its password: delete its file and start "
                "`mas broker` again, which makes a new one",
                peer.principal,
                reason,
            )
