"""Rollout workers as the process that trains sees them: each has a base, an engine and the adapter versions of now.

What a worker makes of an order is a pure function of the order, the setup and the adapters. So any worker may die: it
is started again and gets the versions that are held, and its orders are played again by whoever is free.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.config.options import WorkerOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef
from mas.core.errors import CallFailed, TrainingError, WorkerLost
from mas.core.records import Episode
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model_sources import Origin
from mas.training.task_batch import TaskOrder
from mas.training.version_orders import HeldVersionOrder, packed_files

_LOSSES = 3
"""Workers that may be lost with one order before training ends: then it is the order that kills them."""


class RolloutWorkers:
    """Satisfies `mas.training.task_batch.TaskPlayer`. Made by `start_workers`.

    Attributes:
        restarts: how often a worker was started again.
    """

    def __init__(self, cluster: Cluster, handles: Sequence[Handle], origin: Origin) -> None:
        self._cluster, self._handles, self._origin = cluster, [*handles], origin
        self._busy = [0] * len(self._handles)
        self._reviving = [asyncio.Lock() for _ in self._handles]
        self._held: dict[AdapterRef, tuple[bytes, Ref]] = {}
        self._leases: dict[AdapterRef, int] = {}
        self.restarts = 0

    @property
    def count(self) -> int:
        """How many workers there are."""
        return len(self._handles)

    @property
    def held(self) -> set[AdapterRef]:
        """The adapter versions that every worker holds or is getting."""
        return {*self._held}

    @asynccontextmanager
    async def holding(self, ref: AdapterRef, weights: AdapterWeights) -> AsyncIterator[None]:
        """Within the block every worker can speak as this version.

        Raises:
            TrainingError: one cannot.
        """
        self._leases[ref] = self._leases.get(ref, 0) + 1
        try:
            if ref not in self._held:
                digest, content = packed_files(weights, self._origin)
                order = msgspec.json.encode(HeldVersionOrder(ref=ref, digest=digest))
                self._held[ref] = (order, await self._cluster.put(content))
                await together([self._hold(number, ref) for number in range(self.count)], "hold")
            yield
        finally:
            self._leases[ref] -= 1
            if not self._leases[ref]:
                del self._leases[ref]
                await self._drop(ref)

    async def play(self, order: TaskOrder) -> Sequence[Episode]:
        """See `TaskPlayer.play`; the worker with the fewest orders gets it."""
        content = msgspec.json.encode(order)
        for _ in range(_LOSSES):
            number = min(range(self.count), key=self._busy.__getitem__)
            self._busy[number] += 1
            try:
                handle = await self._ready(number)
                played = await handle.call("play", content, timeout_s=None)
                return msgspec.msgpack.decode(played, type=list[Episode])
            except CallFailed as error:
                raise TrainingError(f"a task of step {order.step + 1} cannot be played: {error}") from error
            except WorkerLost:
                await self._revive(number, handle)
            finally:
                self._busy[number] -= 1
        raise TrainingError(
            f"{_LOSSES} workers were lost while they played task {order.pick.index} of step {order.step + 1}: their "
            f"output is in {self._cluster.logs}"
        )

    def metrics(self) -> Mapping[str, int]:
        """How many there are, and how often one was started again so far."""
        return {"count": self.count, "restarts": self.restarts}

    async def _hold(self, number: int, ref: AdapterRef) -> None:
        """Give a worker a version."""
        handle = await self._ready(number)
        order, content = self._held[ref]
        try:
            await handle.call("hold", order, refs=[content], timeout_s=None)
        except CallFailed as error:
            raise TrainingError(f"{handle.name} cannot hold adapter {ref}: {error}") from error
        except WorkerLost:
            await self._revive(number, handle)

    async def _ready(self, number: int) -> Handle:
        """A worker, once it has what is held if it is being started again."""
        async with self._reviving[number]:
            return self._handles[number]

    async def _drop(self, ref: AdapterRef) -> None:
        """Let all workers forget a version; one that is lost has forgotten it."""
        if (held := self._held.pop(ref, None)) is None:
            return
        order, content = held
        await asyncio.gather(*(self._drop_from(number, order) for number in range(self.count)), return_exceptions=True)
        await self._cluster.free(content)

    async def _drop_from(self, number: int, order: bytes) -> None:
        handle = await self._ready(number)
        if handle.alive:
            await handle.call("drop", order, timeout_s=None)

    async def _revive(self, number: int, lost: Handle) -> None:
        """Start a lost worker again, with all versions that are held, oldest first; whoever comes second waits."""
        async with self._reviving[number]:
            if self._handles[number] is not lost:
                return
            for _ in range(_LOSSES):
                self.restarts += 1
                try:
                    self._handles[number] = lost = await self._cluster.respawn(lost)
                    await self._hold_all(lost)
                    return
                except WorkerLost:
                    continue
                except BaseException:  # also if cancelled: it lacks versions, and must not be asked
                    await lost.kill()
                    raise
            raise TrainingError(
                f"{lost.name} was lost {_LOSSES} times while it was started again: see {self._cluster.logs}"
            )

    async def _hold_all(self, handle: Handle) -> None:
        """Give a worker all versions that are held, also those that come meanwhile, oldest first."""
        done: set[AdapterRef] = set()
        while left := [ref for ref in self._held if ref not in done]:
            ref = min(left, key=lambda one: one.version)
            done.add(ref)
            order, content = self._held[ref]
            await handle.call("hold", order, refs=[content], timeout_s=None)


async def start_workers(
    cluster: Cluster, options: WorkerOptions, factory: str, arguments: bytes, *, origin: Origin, threads: int
) -> RolloutWorkers:
    """Start the workers.

    Args:
        factory, arguments: see `Cluster.spawn`; the worker has `hold`, `drop` and `play`.
        origin: of the base of the adapters.

    Raises:
        ClusterError: they cannot be started.
    """
    spawns = [
        cluster.spawn(
            "rollout", factory, arguments, cpus=options.worker_cpus, gpus=options.worker_gpus, threads=threads
        )
        for _ in range(options.workers)
    ]
    return RolloutWorkers(cluster, await together(spawns, "spawn"), origin)
