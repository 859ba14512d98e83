"""Which requests an engine has accepted and not finished, so that closing it can wait for them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from mas.core.errors import EngineError

CLOSING_S = 30.0
"""How long closing waits for what was accepted."""


class InFlight:
    """Counts requests from acceptance to end."""

    def __init__(self) -> None:
        self.count = 0
        self.is_closed = False
        self._landed = asyncio.Event()

    @contextmanager
    def accepted(self) -> Iterator[None]:
        """A request from here to the end of the block.

        Raises:
            EngineError: the engine is closed.
        """
        if self.is_closed:
            raise EngineError("the engine is closed")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1
            self._landed.set()

    async def close(self, limit_s: float = CLOSING_S) -> int:
        """Let nothing more in and wait for what is under way; how much of it was not done in time."""
        self.is_closed = True
        try:
            async with asyncio.timeout(limit_s):
                while self.count:
                    self._landed.clear()
                    await self._landed.wait()
        except TimeoutError:
            pass
        return self.count
