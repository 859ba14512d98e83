"""The contract of whoever judges turns after they were sampled: answers by turn id, at any time and in any order."""

from collections.abc import AsyncGenerator, Callable, Sequence

import msgspec

from mas.core.records import Turn


class Answer(msgspec.Struct, frozen=True):
    """What one term of one turn is worth. `turn`: its id; `term`: its name, without `own.`."""

    turn: str
    term: str
    value: float


Judge = Callable[[Sequence[Turn]], AsyncGenerator[Answer]]
"""Asked once for all turns that were sampled together. It may ask others, over a bus or by other means, and yields an
answer as it comes; when it ends, nothing more comes. It is closed if it is still going on a step later."""
