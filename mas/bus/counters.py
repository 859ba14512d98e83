"""What a bus counts: every message accepted ends in exactly one counter, with its cause."""

from mas.core.bus import BusStatistics


class DetailedStatistics(BusStatistics, frozen=True, kw_only=True):
    """`BusStatistics` with `dropped` split by cause: dropped = duplicates + refused + cancelled + late + abandoned.

    Attributes:
        duplicates: an id that was already accepted at the same address.
        refused: the queue was full and the sender chose not to wait.
        cancelled: the sender was cancelled before a receiver took the message.
        late: answers and errors that nobody waited for any more.
        abandoned: the last listener left, or the bus closed, before the message was taken.
        unanswered: requests taken by a receiver, whose answer did not come in time (counted under `delivered`).
    """

    duplicates: int
    refused: int
    cancelled: int
    late: int
    abandoned: int
    unanswered: int


class Counters:
    """The running counts behind `DetailedStatistics`."""

    __slots__ = (
        "abandoned",
        "accepted",
        "cancelled",
        "delivered",
        "duplicates",
        "expired",
        "late",
        "refused",
        "unanswered",
    )

    def __init__(self) -> None:
        self.accepted = 0
        self.delivered = 0
        self.expired = 0
        self.duplicates = 0
        self.refused = 0
        self.cancelled = 0
        self.late = 0
        self.abandoned = 0
        self.unanswered = 0

    def freeze(self, *, waiting: int, subscriptions: int) -> DetailedStatistics:
        """The counts as they are now, with what is still on its way."""
        return DetailedStatistics(
            accepted=self.accepted,
            delivered=self.delivered,
            expired=self.expired,
            dropped=self.duplicates + self.refused + self.cancelled + self.late + self.abandoned,
            waiting=waiting,
            subscriptions=subscriptions,
            duplicates=self.duplicates,
            refused=self.refused,
            cancelled=self.cancelled,
            late=self.late,
            abandoned=self.abandoned,
            unanswered=self.unanswered,
        )
