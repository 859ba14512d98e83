"""What the bytes of a flow mean: one token per edge, one status per node."""

from typing import Final

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
"""Node: running for an iteration that is over; its output is recorded and sent to nobody."""
FIRED: Final = 4
SKIPPED: Final = 5
