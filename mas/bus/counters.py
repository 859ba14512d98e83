"""What a bus counts: every message accepted ends in exactly one counter, with its cause."""

from mas.core.bus import BusStatistics, PartStatistics

_NO_PARTS = PartStatistics()


class DetailedStatistics(BusStatistics, frozen=True, kw_only=True):
    """`BusStatistics` with `dropped` split by cause: dropped = duplicates + refused + cancelled + late + abandoned.

    Attributes:
        duplicates: an id that was already accepted at the same address.
        refused: there was no room, and the sender chose not to wait or sent with best effort.
        cancelled: the sender was cancelled before a receiver took the message.
        late: answers and errors that were not awaited any more.
        abandoned: messages that no subscription was left to take, and whose delivery was not promised: the last
            listener left, the bus closed, or it was given back once too often.
        unanswered: requests taken by a receiver, whose answer did not come in time (counted under `delivered`, too).
        redelivered: how often a message was given back, and not given up on.
        forgotten: dead letters of which only the count is left.
    """

    duplicates: int
    refused: int
    cancelled: int
    late: int
    abandoned: int
    unanswered: int
    redelivered: int
    forgotten: int


class Counters:
    """The running counts behind `DetailedStatistics`; `delivered` counts what is held and what is processed."""

    __slots__ = (
        "abandoned",
        "accepted",
        "cancelled",
        "dead",
        "delivered",
        "duplicates",
        "expired",
        "late",
        "processed",
        "redelivered",
        "refused",
        "unanswered",
    )

    def __init__(self) -> None:
        self.accepted = 0
        self.delivered = 0
        self.processed = 0
        self.expired = 0
        self.dead = 0
        self.duplicates = 0
        self.refused = 0
        self.cancelled = 0
        self.late = 0
        self.abandoned = 0
        self.unanswered = 0
        self.redelivered = 0

    def freeze(
        self, *, waiting: int, subscriptions: int, forgotten: int = 0, parts: PartStatistics = _NO_PARTS
    ) -> DetailedStatistics:
        """The counts as they are now, with what is still on its way."""
        return DetailedStatistics(
            accepted=self.accepted,
            delivered=self.delivered,
            processed=self.processed,
            held=self.delivered - self.processed,
            expired=self.expired,
            dead=self.dead,
            dropped=self.duplicates + self.refused + self.cancelled + self.late + self.abandoned,
            waiting=waiting,
            subscriptions=subscriptions,
            duplicates=self.duplicates,
            refused=self.refused,
            cancelled=self.cancelled,
            late=self.late,
            abandoned=self.abandoned,
            unanswered=self.unanswered,
            redelivered=self.redelivered,
            forgotten=forgotten,
            parts=parts,
        )
