"""Who is on the bus: one card per process, and who has not been heard of since its card went.

A process that leaves says so and is gone at once. One that vanishes (the broker published its will, or nobody listens
where it should) is a suspect for a while first: it may only have lost its connection, as all do when the broker
restarts, and what it holds must not be done elsewhere as well. The heartbeat is MQTT's own. A process with a journal
that is gone may come back as itself: it is away for as long as its card says.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Annotated

import msgspec

from mas.bus.mqtt.client import NOBODY
from mas.bus.mqtt.topics import Peer
from mas.core.errors import Malformed

_VANISHED = 256
_LONGEST_S = 86_400.0
"""How long a process may be away at most, whatever its card says."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of itself. The broker vouches for its principal, as the topic's; the rest is its claim.

    Attributes:
        since: when it came to the bus, in seconds since 1970.
        addresses: what it listens at -> the principal that reads there.
        is_leaving: it goes now and takes nothing more.
        away_s: how long it may be gone and come back with what it had sent; 0: it does not.
        draining: those of the addresses where it takes nothing new and has something in hand.
        claims: addresses that it wants to listen at, where only so many may; see `mas.bus.mqtt.leases`.
        obeys: principals on whose word it ends; see `mas.bus.mqtt.shutdown`.
        dismisses: processes that it tells to end -> whether at once, instead of when they have nothing more in hand.
    """

    since: float
    addresses: dict[str, str]
    is_leaving: bool = False
    away_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    draining: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    obeys: tuple[str, ...] = ()
    dismisses: dict[str, bool] = {}

    def takes(self, address: str) -> bool:
        """Whether it listens at an address and takes what comes."""
        return address in self.addresses and address not in self.draining


def read_card(payload: bytes) -> Card | None:
    """The card in a payload; None for the empty one, which takes a card away.

    Raises:
        Malformed: it is no card.
    """
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload, type=Card)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(f"not a card: {str(error)[:300]}") from error


class Cards:
    """The cards of one space.

    Args:
        clock: seconds, for how long a process has been a suspect.
        absent_s: how long it stays one before it is gone.
        most_away: processes of one principal that may come back, the latest.
        gone: called with a process that left or was given up, and the card that it had last.
        back: called with one that was away and came back; forgotten: with one that did not in time.
        changed: called with each card that came, and with None for one that is gone.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        absent_s: float,
        most_away: int,
        gone: Callable[[Peer, Card], None],
        back: Callable[[Peer], None],
        forgotten: Callable[[Peer], None],
        changed: Callable[[Peer, Card | None], None],
    ) -> None:
        self._clock = clock
        self._absent_s = absent_s
        self._most_away = most_away
        self._gone = gone
        self._back = back
        self._forgotten = forgotten
        self._changed = changed
        self._away: dict[Peer, float] = {}
        self._cards: dict[Peer, Card] = {}
        self._suspects: dict[Peer, float] = {}
        self.vanished: deque[Peer] = deque(maxlen=_VANISHED)
        """Those that were given up: the latest ones, which may come back."""

    def __iter__(self) -> Iterator[tuple[Peer, Card]]:
        return iter(tuple(self._cards.items()))

    def of(self, peer: Peer) -> Card:
        """The card of a process that is there."""
        return self._cards[peer]

    def take(self, peer: Peer, card: Card | None) -> None:
        """A card came, or went without a word."""
        if card is not None and peer in self.vanished:
            self.vanished.remove(peer)
        if card is None:
            self.suspect(peer)
        elif card.is_leaving:
            self._remove(peer, card)
        else:
            self._cards[peer] = card
            self._changed(peer, card)
            self.heard(peer)
            if self._away.pop(peer, None) is not None:
                self._back(peer)

    def remember(self, peer: Peer, card: Card) -> None:
        """A process was there in an earlier life of this one: it may still be."""
        self._cards[peer] = card
        self.suspect(peer)

    def heard(self, peer: Peer) -> None:
        """The process is there."""
        if self._suspects:
            self._suspects.pop(peer, None)

    def found(self, peer: Peer, code: int) -> None:
        """The broker's reason code for a question to the process."""
        if code == NOBODY:
            self.suspect(peer)
        elif code == 0:
            self.heard(peer)

    def suspect(self, peer: Peer) -> None:
        """The process may be gone."""
        if peer in self._cards:
            self._suspects.setdefault(peer, self._clock())

    def suspect_all(self) -> None:
        """The connection is new: who is there must show again."""
        self._suspects = dict.fromkeys(self._cards, self._clock())

    @property
    def suspects(self) -> tuple[Peer, ...]:
        """Those that should be asked whether they are there."""
        return tuple(self._suspects)

    def stood_still(self, gap_s: float) -> None:
        """This process did not run for so long, and has not heard what the others said meanwhile."""
        now = self._clock()
        self._suspects = {peer: min(now, since + gap_s) for peer, since in self._suspects.items()}

    def give_up(self) -> None:
        """Let those go that have been suspects for too long."""
        if self._suspects:
            limit = self._clock() - self._absent_s
            for peer in [peer for peer, since in self._suspects.items() if since <= limit]:
                self._remove(peer)
                self.vanished.append(peer)
        if self._away:
            now = self._clock()
            for peer in [peer for peer, until in self._away.items() if until <= now]:
                del self._away[peer]
                self._forgotten(peer)

    def knows(self, peer: Peer) -> bool:
        """Whether it is there, suspects included."""
        return peer in self._cards

    def listeners(self, address: str) -> list[Peer]:
        """The processes that listen at an address, suspects included."""
        return [peer for peer, card in self._cards.items() if address in card.addresses]

    def is_draining(self, address: str) -> bool:
        """Whether processes listen at an address and none of them takes what comes."""
        cards = [card for card in self._cards.values() if address in card.addresses]
        return bool(cards) and not any(card.takes(address) for card in cards)

    def readers(self, address: str) -> set[str]:
        """The principals that read at an address."""
        return {card.addresses[address] for card in self._cards.values() if address in card.addresses}

    def addresses(self) -> set[str]:
        """All addresses that somebody listens at."""
        return {address for card in self._cards.values() for address in card.addresses}

    def _remove(self, peer: Peer, leaving: Card | None = None) -> None:
        self._suspects.pop(peer, None)
        last = self._cards.pop(peer, None)
        if last is None:
            return
        self._changed(peer, None)
        if last.away_s > 0:
            self._expect_back(peer, last.away_s)
        self._gone(peer, leaving or last)

    def _expect_back(self, peer: Peer, away_s: float) -> None:
        """Remember that a process may come back, and no longer the oldest of too many."""
        self._away.pop(peer, None)
        same = [other for other in self._away if other.principal == peer.principal]
        for other in same[: max(0, len(same) + 1 - self._most_away)]:
            del self._away[other]
            self._forgotten(other)
        self._away[peer] = self._clock() + min(away_s, _LONGEST_S)
