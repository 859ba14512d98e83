"""Which cards are believed: those within bounds that claim only addresses of their principal.

The broker vouches for whose card it is and for nothing in it. A principal that was taken over can show many cards, and
long ones, and they stay with the broker; here they cost bounded memory and change nothing for others.
"""

import logging
from collections import defaultdict
from collections.abc import Callable

from mas.bus.mqtt.presence import Card, read_card
from mas.bus.mqtt.topics import Peer

Owns = Callable[[str, str], bool]
"""Whether a principal, the first, may listen at an address, the second."""
PRINCIPALS = 64
"""So many may show cards of `max_card_bytes` each; then there is no room for more."""
_log = logging.getLogger(__name__)


def any_address(principal: str, address: str) -> bool:
    """Every principal may listen at every address, as far as the broker lets it."""
    return True


class Admission:
    """Decides on cards and counts those that it refuses; each principal's first one is logged.

    Args:
        owns: whether a principal may listen at an address.
        most: processes of one principal.
        most_bytes: of all cards of one principal together.
    """

    def __init__(self, owns: Owns, *, most: int, most_bytes: int) -> None:
        self.refused = 0
        self._owns = owns
        self._most = most
        self._most_bytes = most_bytes
        self._bytes: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._total = 0
        self._logged: set[str] = set()

    def read(self, peer: Peer, payload: bytes) -> Card | None:
        """The card in a payload; None: it is refused, and what was known of the process stays.

        Raises:
            Malformed: it is no card.
        """
        reason = self._too_much(peer, len(payload))
        card = None if reason else read_card(payload)
        if card is not None:
            reason = self._not_its(peer, card)
        if reason:
            self._refuse(peer, reason)
            return None
        if card is not None and not card.is_leaving:
            self._total += len(payload) - self._bytes[peer.principal].get(peer.process, 0)
            self._bytes[peer.principal][peer.process] = len(payload)
        return card

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
            return f"it has {self._most:,} processes on the bus already (max_cards)"
        if sum(sizes.values()) - before + size > self._most_bytes:
            return f"its cards would be longer than {self._most_bytes:,} bytes together (max_card_bytes)"
        if self._total - before + size > PRINCIPALS * self._most_bytes:
            return f"all cards would be longer than {PRINCIPALS * self._most_bytes:,} bytes (max_card_bytes)"
        return ""

    def _not_its(self, peer: Peer, card: Card) -> str:
        for address in (*card.addresses, *card.draining, *card.claims):
            if not self._owns(peer.principal, address):
                return f"it claims the address {address[:200]!r}, which is another's"
        return ""

    def _refuse(self, peer: Peer, reason: str) -> None:
        self.refused += 1
        if peer.principal not in self._logged and len(self._logged) < PRINCIPALS:
            self._logged.add(peer.principal)
            _log.warning(
                "cards of %.200r are ignored: %s. Somebody else may have its password: delete its file and start "
                "`mas broker` again, which makes a new one",
                peer.principal,
                reason,
            )
