"""Stopping what a runtime plays: let it come to a good place (drain), or end it now (cancel)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mas.core.errors import Halted

_LEAVE_S = 5.0
"""How long `cancel` waits for tasks that ignore their cancellation."""


class RequestGate:
    """Counts what runs, refuses what comes too late, and ends what does not end by itself."""

    def __init__(self) -> None:
        self.is_draining = False
        self._open: set[asyncio.Timeout] = set()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def passing(self, what: str) -> AsyncIterator[None]:
        """Something that runs; `cancel` ends it.

        Raises:
            Halted: it was cancelled.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._open.add(limit)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Halted(f"{what} was cancelled") from None
        finally:
            self._open.discard(limit)
            if not self._open:
                self._left.set()

    def check(self, what: str) -> None:
        """Refuse to begin.

        Raises:
            Halted: it is too late.
        """
        if self.is_draining:
            raise Halted(f"{what} does not begin: the team is stopping")

    async def drain(self, timeout_s: float | None) -> None:
        """Let nothing new begin, and wait for what runs; cancel what is not over after `timeout_s` (None: wait)."""
        self.is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty()
        except TimeoutError:
            await self.cancel()

    async def cancel(self) -> None:
        """Let nothing new begin, end what runs, and wait until it has ended, five seconds at most."""
        self.is_draining = True
        now = asyncio.get_running_loop().time()
        for limit in self._open:
            if limit.when() is None:
                limit.reschedule(now)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._empty()
        except TimeoutError:
            return  # what is left will end when its task does

    async def _empty(self) -> None:
        while self._open:
            self._left.clear()
            await self._left.wait()
