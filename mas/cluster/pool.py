"""Workers that are alike: a call goes to the least busy worker, and again to another one if that worker is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.core.errors import ClusterError, WorkerLost

LOSSES = 3
"""Workers that may be lost with one call, and starts of one worker that may be lost in a row."""


class WorkerPool:
    """Calls workers whose methods may run twice, and starts lost workers again.

    A worker is lost with all calls that it has in flight, though one of them may be the reason. A call that was lost
    twice therefore gets a worker for itself: a third loss is that call's doing.

    Args:
        cluster: which started them. handles: all made by one factory of the same arguments; one at least.

    Attributes:
        restarts: how often a worker was started again.
    """

    def __init__(self, cluster: Cluster, handles: Sequence[Handle]) -> None:
        self._cluster, self._handles = cluster, [*handles]
        self._calls = [0] * len(self._handles)
        self._reserved: set[int] = set()
        self._released = asyncio.Condition()
        self._starting = [asyncio.Lock() for _ in self._handles]
        self.restarts = 0

    async def call(self, method: str, payload: bytes, what: str) -> bytes:
        """Call `method(payload)` of a worker and return its bytes.

        Args:
            what: names the call in errors.

        Raises:
            CallFailed: the method raised, or the factory of a worker that was started again.
            ClusterError: the call lost `LOSSES` workers, or a worker cannot be started again; says where the output is.
        """
        for losses in range(LOSSES):
            async with self._place(is_alone=losses == LOSSES - 1) as number:
                handle = await self._ready(number)
                try:
                    return await handle.call(method, payload, timeout_s=None)
                except WorkerLost as error:
                    lost = error
                    await handle.kill()  # from here on it takes no call
        raise ClusterError(
            f"{what}: {LOSSES} workers were lost with it, the last one while it did nothing else; their output is in "
            f"{self._cluster.logs}"
        ) from lost

    @asynccontextmanager
    async def _place(self, *, is_alone: bool) -> AsyncIterator[int]:
        """The number of the worker with the fewest calls; `is_alone`: it has no other call within the block."""
        async with self._released:
            await self._released.wait_for(lambda: len(self._reserved) < len(self._handles))
            free = [number for number in range(len(self._handles)) if number not in self._reserved]
            number = min(free, key=self._calls.__getitem__)
            self._calls[number] += 1
            if is_alone:
                self._reserved.add(number)
        try:
            if is_alone:
                async with self._released:
                    await self._released.wait_for(lambda: self._calls[number] == 1)
            yield number
        finally:
            self._calls[number] -= 1
            if is_alone:
                self._reserved.remove(number)
            async with self._released:
                self._released.notify_all()

    async def _ready(self, number: int) -> Handle:
        """A worker that takes calls, as far as is known; a lost one is started again, once for all who wait for it.

        Raises:
            ClusterError: it cannot be started.
        """
        async with self._starting[number]:
            if not self._handles[number].alive:
                self._handles[number] = await self._restarted(self._handles[number])
            return self._handles[number]

    async def _restarted(self, lost: Handle) -> Handle:
        for _ in range(LOSSES):
            self.restarts += 1
            try:
                return await self._cluster.respawn(lost)
            except WorkerLost as error:
                reason = error
        raise ClusterError(
            f"{lost.name} was lost {LOSSES} times while it was started again; its output is in {self._cluster.logs}"
        ) from reason
