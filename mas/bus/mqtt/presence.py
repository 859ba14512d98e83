"""What a process says of itself, which of these presences are believed, and which processes are on the bus.

The broker vouches for whose presence it is, and for nothing in it. A principal that was taken over can publish many
presences, and long ones, and they stay with the broker; here they cost bounded memory and change nothing for others.

A process that leaves says so and is gone at once. One that vanishes (the broker published its will, or has no
subscriber where it should) is a suspect for a while first: it may only have lost its connection, as all do when the
broker restarts, and what it holds must not be handled elsewhere as well. The heartbeat is MQTT's own. A process with a
journal that is gone may come back as itself: it is away for as long as its presence says.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from mas.bus.mqtt.client import NOBODY
from mas.bus.mqtt.options import MqttOptions
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
        leases: addresses that it asks to listen at, where only so many may; see `mas.bus.mqtt.coordination`.
        stops_for: principals whose shutdown commands it carries out; see `mas.bus.mqtt.coordination`.
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
        self._owns, self._most, self._most_bytes = owns, most, most_bytes
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


_VANISHED = 256
_LONGEST_S = 86_400.0
"""How long a process may be away at most, whatever its presence says."""


class PeerObserver:
    """Hears of processes that come and go. Does nothing by itself: override what matters."""

    def peer_changed(self, peer: Peer, presence: Presence | None) -> None:
        """A process announced a presence; None: it is gone."""

    def peer_gone(self, peer: Peer, presence: Presence) -> None:
        """A process left, which its presence says, or was given up: then with the presence that it had last."""

    def peer_back(self, peer: Peer) -> None:
        """A process that was away came back."""

    def peer_forgotten(self, peer: Peer) -> None:
        """A process that was away did not come back in time."""


class Peers:
    """The processes of one space.

    Args:
        clock: seconds, for how long a process has been a suspect.
        owns: whether a principal may listen at an address; presences that claim others are ignored.

    Attributes:
        filter: decides which presences are believed, before `take`.
        observers: hear of each change, in order.
        vanished: those that were given up, the latest ones; they may have come back.
    """

    def __init__(self, *, clock: Callable[[], float], options: MqttOptions, owns: Owns = any_address) -> None:
        self.filter = PresenceFilter(owns, most=options.max_processes, most_bytes=options.max_presence_bytes)
        self.observers: tuple[PeerObserver, ...] = ()
        self.vanished: deque[Peer] = deque(maxlen=_VANISHED)
        self._clock = clock
        self._absent_s = options.absent_s
        self._most_away = options.max_processes
        self._away: dict[Peer, float] = {}
        self._presences: dict[Peer, Presence] = {}
        self._suspects: dict[Peer, float] = {}

    def __iter__(self) -> Iterator[tuple[Peer, Presence]]:
        return iter(tuple(self._presences.items()))

    def of(self, peer: Peer) -> Presence:
        """The presence of a process that is there."""
        return self._presences[peer]

    def take(self, peer: Peer, presence: Presence | None) -> None:
        """A presence came, or was removed without a word."""
        if presence is not None and peer in self.vanished:
            self.vanished.remove(peer)
        if presence is None:
            self.suspect(peer)
        elif presence.is_leaving:
            self._remove(peer, presence)
        else:
            self._presences[peer] = presence
            for observer in self.observers:
                observer.peer_changed(peer, presence)
            self.seen(peer)
            if self._away.pop(peer, None) is not None:
                for observer in self.observers:
                    observer.peer_back(peer)

    def remember(self, peer: Peer, presence: Presence) -> None:
        """A process was there in an earlier life of this one: it may still be."""
        self._presences[peer] = presence
        self.suspect(peer)

    def seen(self, peer: Peer) -> None:
        """The process is there."""
        if self._suspects:
            self._suspects.pop(peer, None)

    def take_code(self, peer: Peer, code: int) -> None:
        """The broker's reason code for a query to the process."""
        if code == NOBODY:
            self.suspect(peer)
        elif code == 0:
            self.seen(peer)

    def suspect(self, peer: Peer) -> None:
        """The process may be gone."""
        if peer in self._presences:
            self._suspects.setdefault(peer, self._clock())

    def suspect_all(self) -> None:
        """The connection is new: every process that is there will announce itself again."""
        self._suspects = dict.fromkeys(self._presences, self._clock())

    @property
    def suspects(self) -> tuple[Peer, ...]:
        """Those that should be asked whether they are there."""
        return tuple(self._suspects)

    def stood_still(self, gap_s: float) -> None:
        """This process did not run for so long, and has not heard what the others said meanwhile."""
        now = self._clock()
        self._suspects = {peer: min(now, since + gap_s) for peer, since in self._suspects.items()}

    def give_up(self) -> None:
        """Remove those that have been suspects for too long."""
        if self._suspects:
            limit = self._clock() - self._absent_s
            for peer in [peer for peer, since in self._suspects.items() if since <= limit]:
                self._remove(peer)
                self.vanished.append(peer)
        if self._away:
            for peer in [peer for peer, until in self._away.items() if until <= self._clock()]:
                self._forget(peer)

    def listeners(self, address: str) -> list[Peer]:
        """The processes that listen at an address, suspects included."""
        return [peer for peer, presence in self._presences.items() if address in presence.addresses]

    def is_draining(self, address: str) -> bool:
        """Whether processes listen at an address and none of them takes what comes."""
        there = [presence for presence in self._presences.values() if address in presence.addresses]
        return bool(there) and not any(presence.takes(address) for presence in there)

    def readers(self, address: str) -> set[str]:
        """The principals that read at an address."""
        return {presence.addresses[address] for _, presence in self if address in presence.addresses}

    def addresses(self) -> set[str]:
        """All addresses with a listener."""
        return {address for presence in self._presences.values() for address in presence.addresses}

    def _remove(self, peer: Peer, leaving: Presence | None = None) -> None:
        self._suspects.pop(peer, None)
        last = self._presences.pop(peer, None)
        if last is None:
            return
        self.filter.forget(peer)
        for observer in self.observers:
            observer.peer_changed(peer, None)
        if last.away_s > 0:
            self._expect_back(peer, last.away_s)
        for observer in self.observers:
            observer.peer_gone(peer, leaving or last)

    def _expect_back(self, peer: Peer, away_s: float) -> None:
        """Remember that a process may come back, and no longer the oldest of too many of its principal."""
        self._away.pop(peer, None)
        same = [other for other in self._away if other.principal == peer.principal]
        for other in same[: max(0, len(same) + 1 - self._most_away)]:
            self._forget(other)
        self._away[peer] = self._clock() + min(away_s, _LONGEST_S)

    def _forget(self, peer: Peer) -> None:
        del self._away[peer]
        for observer in self.observers:
            observer.peer_forgotten(peer)
