"""The base that one server has: the names that clients may call it by, and the thread in which adapters compute."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mas.core.concurrency import finished
from mas.core.errors import RefusedRequest
from mas.serving.model import BaseModel

T = TypeVar("T")


class ServedBase:
    """A base with one thread for what models compute, one request after the other.

    Args:
        names: that clients may call the base by, the first as it is told to them.
    """

    def __init__(self, model: BaseModel, names: tuple[str, ...]) -> None:
        self.model = model
        self.names = names
        self._thread = ThreadPoolExecutor(1, "mas-tinker")

    def check(self, name: str | None) -> None:
        """Refuse another base than the one here; None is this one.

        Raises:
            RefusedRequest: it is another one.
        """
        if name is not None and name not in self.names:
            raise RefusedRequest(
                f"no base model {name[:200]!r} here; this server has {' or '.join(map(repr, self.names))}"
            )

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What a model computes, or a file that is read or written."""
        return await finished(self._thread, work)

    async def close(self) -> None:
        """Wait for what computes."""
        await asyncio.to_thread(self._thread.shutdown)
