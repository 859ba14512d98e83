"""The state of a token flow, as data: one token per edge, one status per node, the instances of mapped agents."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from mas.core.messages import Items, Note, Payload
from mas.core.role import EarlierCall, Message
from mas.graph.plan import TeamPlan

NONE: Final = 0
"""Edge: not decided in this iteration."""
LIVE: Final = 1
KEPT: Final = 2
"""Edge: live since an earlier iteration of the loop that it leads into."""
HELD: Final = 3
"""Edge: dead, but it leaves a loop that may still iterate; believed when nothing else can happen."""
DEAD: Final = 4

WAITING: Final = 0
READY: Final = 1
RUNNING: Final = 2
"""Node: at work; a mapped one until its last instance has spoken."""
STALE: Final = 3
"""Node: running for an iteration that is over; its output is recorded and not sent."""
FIRED: Final = 4
SKIPPED: Final = 5


Past = Mapping[str, tuple[EarlierCall, ...]]
NO_PAST: Final[Past] = {}
"""Of an episode's first team turn, and where no role has a `history`."""


@dataclass(frozen=True, slots=True)
class MapInstances:
    """The instances of one mapped agent: each speaks about one item of a list, and all that they say is one list.

    Immutable, like the flow that holds it.

    Attributes:
        status: one per instance of this iteration: `READY`, `RUNNING`, `FIRED`; `STALE` where the iteration is over.
        said: every instance's outputs in this turn; heard: every instance's items as messages; oldest first. Longer
            than `status` where an earlier iteration had more items.
        asked: of every instance, how many messages it had heard at the beginning of each call.
    """

    status: bytes = b""
    said: tuple[tuple[Payload, ...], ...] = ()
    heard: tuple[tuple[Message, ...], ...] = ()
    asked: tuple[tuple[int, ...], ...] = ()

    def opened(self, sender: str, items: tuple[str, ...]) -> "MapInstances":
        """An instance for every item is ready."""
        missing = ((),) * (len(items) - len(self.said))
        said, heard, asked = [*self.said, *missing], [*self.heard, *missing], (*self.asked, *missing)
        for number, item in enumerate(items):
            heard[number] += (Message(sender, Note(text=item)),)
        return MapInstances(bytes((READY,)) * len(items), tuple(said), tuple(heard), asked)

    def begun(self, number: int) -> "MapInstances":
        """The instance is at work."""
        asked = (*self.asked[number], len(self.heard[number]))
        return replace(
            self,
            status=_with(self.status, number, RUNNING),
            asked=(*self.asked[:number], asked, *self.asked[number + 1 :]),
        )

    def spoken(self, number: int, payload: Payload) -> "MapInstances":
        """The instance has spoken."""
        said = (*self.said[:number], (*self.said[number], payload), *self.said[number + 1 :])
        return replace(self, status=_with(self.status, number, FIRED), said=said)

    def outdated(self) -> "MapInstances":
        """The iteration is over: who is at work still ends it, who has not begun never will."""
        status = bytes(STALE if one in (RUNNING, STALE) else FIRED for one in self.status)
        return replace(self, status=status)

    @property
    def is_busy(self) -> bool:
        """Whether an instance has still to speak."""
        return any(one in self.status for one in (READY, RUNNING, STALE))

    def joined(self) -> Items:
        """What the instances of this iteration said, in the order of the items; a failure reads as elsewhere."""
        said = self.said[: len(self.status)]
        return Items(items=tuple(outputs[-1].content for outputs in said))


class FlowState(msgspec.Struct, frozen=True):
    """What a flow is at one moment.

    Attributes:
        tokens: one token per edge; status: one per node; uses: how often each loop was taken.
        said: every node's outputs; heard: every node's messages, both oldest first.
        asked: of every node, how many messages it had heard at the beginning of each call.
        fans: the instances of every agent; empty where none is mapped.
        finished: nothing can fire any more, or the join of `done` is met.
        arrived: the turn's action is committed once it is finished.
        past: the calls of earlier team turns that agents and instances are to be shown, oldest first.
    """

    plan: TeamPlan
    tokens: bytes
    status: bytes
    uses: tuple[int, ...]
    said: tuple[tuple[Payload, ...], ...]
    heard: tuple[tuple[Message, ...], ...]
    asked: tuple[tuple[int, ...], ...]
    fans: tuple[MapInstances, ...]
    finished: bool
    arrived: bool
    past: Past


def _with(status: bytes, number: int, value: int) -> bytes:
    return status[:number] + bytes((value,)) + status[number + 1 :]
