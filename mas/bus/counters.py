"""The limits of one bus, and what it counts: every message accepted ends in exactly one counter, with its cause."""

from dataclasses import asdict, dataclass

from mas.core.bus import BusStatistics, PartStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class BusLimits:
    """How much a bus remembers, and how often it tries.

    Attributes:
        remembered: ids of effectively-once messages; the oldest is forgotten first.
        max_attempts: attempts to handle a message, the first one included, before it is given up on.
        dead_letters: dead letters kept; the oldest is forgotten first; 0: none.
        delayed: messages (with a key: keys) of one address that wait at the same time to be delivered again; one
            more is given up on.

    Raises:
        ValueError: a number is below 1 (`dead_letters`: below 0).
    """

    remembered: int = 16_384
    max_attempts: int = 5
    dead_letters: int = 1_024
    delayed: int = 4_096

    def __post_init__(self) -> None:
        for name, least in (("remembered", 1), ("max_attempts", 1), ("dead_letters", 0), ("delayed", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be {least} or more")


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


@dataclass(slots=True)
class Counters:
    """The running counts behind `DetailedStatistics`; `delivered` counts what is held and what is processed."""

    accepted: int = 0
    delivered: int = 0
    processed: int = 0
    expired: int = 0
    dead: int = 0
    duplicates: int = 0
    refused: int = 0
    cancelled: int = 0
    late: int = 0
    abandoned: int = 0
    unanswered: int = 0
    redelivered: int = 0

    def freeze(self, *, waiting: int, subscriptions: int, forgotten: int, parts: PartStatistics) -> DetailedStatistics:
        """The counts as they are now, with what is still on its way."""
        return DetailedStatistics(
            **asdict(self),
            held=self.delivered - self.processed,
            dropped=self.duplicates + self.refused + self.cancelled + self.late + self.abandoned,
            waiting=waiting,
            subscriptions=subscriptions,
            forgotten=forgotten,
            parts=parts,
        )
