"""What whoever brought a message to a bus is told of it: for a bus between processes, whose sender waits elsewhere."""

from typing import Literal, Protocol

Fate = Literal["taken", "back", "done", "dead", "left"]
"""A receiver took it; it was given back, or its receiver left it to another one here; it was handled; it was given up,
and is a dead letter here; nobody is left here to take it, or it could not be kept: its sender may send it elsewhere."""


class Watch(Protocol):
    """Follows one message.

    Attributes:
        tries: how often a receiver had it and gave it back or left, before it came here.
    """

    tries: int

    def became(self, fate: Fate, tries: int, due: float) -> None:
        """Its latest fate; `tries` as above, and `due`: not to be delivered again before, on the bus's clock."""
