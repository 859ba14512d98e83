"""Rollout workers as the process that trains sees them: each has a base, an engine and the adapter versions of now.

What a worker makes of an order is a pure function of the order, the setup and the adapters. So any worker may die: it
is started again and gets the versions that are held, and its orders are played again by whoever is free.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import msgspec

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.pool import WorkerPool
from mas.cluster.records import Ref
from mas.config.options import WorkerOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef
from mas.core.errors import CallFailed, ClusterError, EngineLost, TrainingError
from mas.core.records import Episode
from mas.serving.adapter_files import HeldVersionOrder, packed_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model_sources import Origin
from mas.training.tasks.plan import TaskOrder


class RolloutWorkers:
    """Satisfies `mas.training.tasks.plan.TaskPlayer`. Made by `start_workers`."""

    def __init__(self, cluster: Cluster, handles: Sequence[Handle], origin: Origin) -> None:
        self._cluster, self._origin = cluster, origin
        self._pool = WorkerPool(cluster, handles, self._hold_all, fatal={EngineLost.__name__})
        self._held: dict[AdapterRef, tuple[bytes, Ref]] = {}
        self._leases: dict[AdapterRef, int] = {}

    @property
    def count(self) -> int:
        return self._pool.count

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
                held = self._held[ref] = (order, await self._cluster.put(content))
                try:
                    await self._pool.call_all("hold", order, [held[1]])
                except ClusterError as error:
                    raise TrainingError(f"adapter {ref} cannot be held by all workers: {error}") from error
            yield
        finally:
            self._leases[ref] -= 1
            if not self._leases[ref]:
                del self._leases[ref]
                await self._drop(ref)

    async def play(self, order: TaskOrder) -> Sequence[Episode]:
        """See `TaskPlayer.play`; the worker with the fewest orders gets it."""
        task = f"task {order.pick.index} of step {order.step + 1}"
        try:
            played = await self._pool.call("play", msgspec.json.encode(order), task)
        except CallFailed as error:
            raise TrainingError(f"{task} cannot be played: {error}") from error
        except ClusterError as error:
            raise TrainingError(str(error)) from error
        return msgspec.msgpack.decode(played, type=list[Episode])

    def metrics(self) -> Mapping[str, int]:
        """How many there are, and how often one was started again so far."""
        return {"count": self.count, "restarts": self._pool.restarts}

    async def _drop(self, ref: AdapterRef) -> None:
        """Let all workers forget a version; one that is lost has forgotten it."""
        if (held := self._held.pop(ref, None)) is None:
            return
        order, content = held
        await self._pool.call_alive("drop", order)
        await self._cluster.free(content)

    async def _hold_all(self, handle: Handle) -> None:
        """Give a worker all versions that are held, also those that come meanwhile, oldest first."""
        done: set[AdapterRef] = set()
        while left := [ref for ref in self._held if ref not in done]:
            ref = min(left, key=lambda one: one.version)
            done.add(ref)
            order, content = self._held[ref]
            await handle.call("hold", order, refs=[content], timeout_s=None)


async def start_workers(
    cluster: Cluster,
    options: WorkerOptions,
    factory: str,
    arguments: bytes,
    *,
    origin: Origin,
    threads: int,
    environment: Sequence[str] = (),
) -> RolloutWorkers:
    """Start the workers.

    Args:
        factory, arguments, environment: see `Cluster.spawn`; the worker has `hold`, `drop` and `play`.
        origin: of the base of the adapters.

    Raises:
        ClusterError: they cannot be started.
    """
    spawns = [
        cluster.spawn(
            "rollout",
            factory,
            arguments,
            cpus=options.worker_cpus,
            gpus=options.worker_gpus,
            threads=threads,
            environment=environment,
        )
        for _ in range(options.workers)
    ]
    return RolloutWorkers(cluster, await together(spawns, "spawn"), origin)
