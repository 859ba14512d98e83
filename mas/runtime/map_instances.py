"""The instances of one mapped agent: each speaks about one item of a list, and all that they say is one list."""

from dataclasses import dataclass

from mas.core.messages import Items, Note, Payload
from mas.core.role import Message
from mas.runtime.tokens import FIRED, READY, RUNNING, STALE


@dataclass(frozen=True, slots=True)
class MapInstances:
    """Immutable, like the flow that holds it.

    Attributes:
        status: one per instance of this iteration: `READY`, `RUNNING`, `FIRED`; `STALE` where the iteration is over.
        said: every instance's outputs in this turn; heard: every instance's items as messages; oldest first. Longer
            than `status` where an earlier iteration had more items.
    """

    status: bytes = b""
    said: tuple[tuple[Payload, ...], ...] = ()
    heard: tuple[tuple[Message, ...], ...] = ()

    def opened(self, sender: str, items: tuple[str, ...]) -> "MapInstances":
        """An instance for every item is ready."""
        missing = ((),) * (len(items) - len(self.said))
        said, heard = [*self.said, *missing], [*self.heard, *missing]
        for number, item in enumerate(items):
            heard[number] += (Message(sender, Note(text=item)),)
        return MapInstances(bytes((READY,)) * len(items), tuple(said), tuple(heard))

    def begun(self, number: int) -> "MapInstances":
        """The instance is at work."""
        return MapInstances(_with(self.status, number, RUNNING), self.said, self.heard)

    def spoken(self, number: int, payload: Payload) -> "MapInstances":
        """The instance has spoken."""
        said = (*self.said[:number], (*self.said[number], payload), *self.said[number + 1 :])
        return MapInstances(_with(self.status, number, FIRED), said, self.heard)

    def outdated(self) -> "MapInstances":
        """The iteration is over: who is at work still ends it, who has not begun never will."""
        status = bytes(STALE if one in (RUNNING, STALE) else FIRED for one in self.status)
        return MapInstances(status, self.said, self.heard)

    @property
    def is_busy(self) -> bool:
        """Whether an instance has still to speak."""
        return any(one in self.status for one in (READY, RUNNING, STALE))

    def joined(self) -> Items:
        """What the instances of this iteration said, in the order of the items; a failure reads as elsewhere."""
        said = self.said[: len(self.status)]
        return Items(items=tuple(outputs[-1].content for outputs in said))


def _with(status: bytes, number: int, value: int) -> bytes:
    return status[:number] + bytes((value,)) + status[number + 1 :]
