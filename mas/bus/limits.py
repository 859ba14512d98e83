"""The bounds of one bus."""

from dataclasses import dataclass


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
