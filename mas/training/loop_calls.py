"""Calls of workers of a cluster by another thread than that of its event loop, as the learner's is."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.core.errors import ClusterError

T = TypeVar("T")


class LoopCalls:
    """Begins calls in the event loop of a cluster, and waits for what they return. Not for that loop's own thread."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self._cluster, self._loop = cluster, loop

    def call(self, handle: Handle, method: str, payload: bytes, refs: Sequence[Ref] = ()) -> Future[bytes]:
        """Begin `Handle.call` without a time limit. A payload that is too long for a call goes as an object, alone."""
        return asyncio.run_coroutine_threadsafe(self._call(handle, method, payload, refs), self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the event loop do other work, and wait for it.

        Raises:
            As `result`.
        """
        return self.result(asyncio.run_coroutine_threadsafe(work, self._loop))

    def result(self, call: Future[T]) -> T:
        """What a call that was begun returns.

        Raises:
            ClusterError: what the call raises, or the loop has ended.
        """
        while not wait([call], timeout=1.0).done:
            if not self._loop.is_running():
                raise ClusterError("the cluster of the learner ranks is closed")
        return call.result()

    def is_loop_thread(self) -> bool:
        """Whether this is the thread of the event loop, which would wait for itself."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    async def _call(self, handle: Handle, method: str, payload: bytes, refs: Sequence[Ref]) -> bytes:
        if len(payload) <= self._cluster.options.payload_mib * 2**20:
            return await handle.call(method, payload, refs=refs, timeout_s=None)
        long = await self._cluster.put(payload)
        try:
            return await handle.call(method, refs=[long], timeout_s=None)
        finally:
            await self._cluster.free(long)


def any_failed(calls: Sequence[Future[bytes]]) -> Callable[[], bool]:
    """Tells, whenever it is asked, whether one of the calls has failed."""
    return lambda: any(call.done() and call.exception() is not None for call in calls)
