"""Workers that are alike: a call goes to the least busy worker, and again to another one if that worker is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.core.concurrency import together
from mas.core.errors import CallExpired, CallFailed, ClusterError, WorkerLost

LOSSES = 3
"""Workers that may be lost with one call, and starts of one worker that may be lost or expire in a row."""


async def _nothing(_: Handle) -> None:
    """A worker that is started again needs nothing."""


class WorkerPool:
    """Calls workers whose methods may run twice, and starts lost workers again.

    A worker is lost with all calls that it has in flight, though one of them may be the reason. A call that was lost
    twice therefore gets a worker for itself: a third loss is that call's doing.

    Args:
        cluster: which started them. handles: all made by one factory of the same arguments; one at least.
        prepare: called with a worker that was started again, before it takes calls; it may be lost meanwhile.
        fatal: classes of errors that say that the worker is of no more use: with one of them it is killed and lost.

    Attributes:
        restarts: how often a worker was started again.
    """

    def __init__(
        self,
        cluster: Cluster,
        handles: Sequence[Handle],
        prepare: Callable[[Handle], Awaitable[None]] = _nothing,
        *,
        fatal: Collection[str] = (),
    ) -> None:
        self._cluster, self._handles, self._prepare, self._fatal = cluster, [*handles], prepare, fatal
        self._calls = [0] * len(self._handles)
        self._reserved: set[int] = set()
        self._released = asyncio.Condition()
        self._starting = [asyncio.Lock() for _ in self._handles]
        self.restarts = 0

    @property
    def count(self) -> int:
        return len(self._handles)

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
                    return await self._answer(handle, method, payload)
                except WorkerLost as error:
                    lost = error
        raise ClusterError(
            f"{what}: {LOSSES} workers were lost with it, the last one while it did nothing else; their output is in "
            f"{self._cluster.logs}"
        ) from lost

    async def call_all(self, method: str, payload: bytes, refs: Sequence[Ref] = ()) -> None:
        """Call a method of every worker. One that is lost is started again and prepared, which stands for the call.

        Args:
            refs: as for `Handle.call`.

        Raises:
            CallFailed: the method raised. ClusterError: a worker cannot be started again.
        """

        async def call(number: int) -> None:
            handle = await self._ready(number)
            try:
                await self._answer(handle, method, payload, refs)
            except WorkerLost:
                await self._ready(number)

        await together([call(number) for number in range(self.count)], method)

    async def call_alive(self, method: str, payload: bytes) -> None:
        """Call a method of every worker that takes calls; one that is lost, or was ended, is passed over.

        Raises:
            CallFailed: the method raised in a worker, once all have answered.
        """

        async def call(number: int) -> None:
            async with self._starting[number]:  # one that is being prepared is called once it is
                handle = self._handles[number]
            if handle.alive:
                await handle.call(method, payload, timeout_s=None)

        answers = await asyncio.gather(*(call(number) for number in range(self.count)), return_exceptions=True)
        for answer in answers:
            if answer is not None and (isinstance(answer, CallFailed) or not isinstance(answer, ClusterError)):
                raise answer

    async def _answer(self, handle: Handle, method: str, payload: bytes, refs: Sequence[Ref] = ()) -> bytes:
        """The answer of a worker. One that is lost takes no call from then on."""
        try:
            return await handle.call(method, payload, refs=refs, timeout_s=None)
        except WorkerLost:
            await handle.kill()
            raise
        except CallFailed as error:
            if error.error_type not in self._fatal:
                raise
            await handle.kill()
            raise WorkerLost(str(error)) from error

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
        """A worker that takes calls, as far as is known; a lost one is started again, once for all who wait for it."""
        async with self._starting[number]:
            if not self._handles[number].alive:
                await self._restart(number)
            return self._handles[number]

    async def _restart(self, number: int) -> None:
        lost = self._handles[number]
        for _ in range(LOSSES):
            self.restarts += 1
            try:
                self._handles[number] = lost = await self._cluster.respawn(lost)
                await self._prepare(lost)
                return
            except (WorkerLost, CallExpired) as error:  # a start that expired has killed its process
                reason = error
            except BaseException:  # also if cancelled: it is not prepared, and must not be asked
                await lost.kill()
                raise
        raise ClusterError(
            f"{lost.name} was lost {LOSSES} times while it was started again, the last time: {reason}; its output is "
            f"in {self._cluster.logs}"
        ) from reason
