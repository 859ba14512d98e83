"""Calls that must not happen before the journal is on the disk: in order, after one wait for all of them."""

import asyncio
from collections.abc import Awaitable, Callable

from mas.core.errors import JournalError


class AfterWrite:
    """Makes calls in the order in which they were given, each when what was written before it is safe.

    Args:
        safe: waits for that; None: there is no journal, and everything is called at once.
        failed: told the error when the disk has failed; nothing is called from then on.
    """

    def __init__(
        self, safe: Callable[[], Awaitable[None]] | None, *, failed: Callable[[JournalError], object], name: str
    ) -> None:
        self._safe = safe
        self._failed = failed
        self._name = name
        self._calls: list[Callable[[], object]] = []
        self._waiting: asyncio.Task[None] | None = None

    def call(self, then: Callable[[], object]) -> None:
        """Call it when it is time; it must not raise."""
        if self._safe is None:
            then()
            return
        self._calls.append(then)
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._safe), name=self._name)

    async def idle(self) -> None:
        """Wait until all calls were made, or none will be any more."""
        if self._waiting is not None:
            await asyncio.wait([self._waiting])

    async def _run(self, safe: Callable[[], Awaitable[None]]) -> None:
        try:
            while self._calls:
                calls, self._calls = self._calls, []
                await safe()
                for then in calls:
                    then()
        except JournalError as error:
            self._calls.clear()
            self._failed(error)
        finally:
            self._waiting = None
