"""Engine replicas in processes of a cluster, as the process that trains sees them."""

import asyncio
from collections.abc import Sequence

import msgspec

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.config.options import WorkerOptions
from mas.core.concurrency import together
from mas.core.engine import Generation, Request
from mas.core.errors import CallExpired, CallFailed, ClusterError, EngineError, EngineLost, WorkerLost, error_named
from mas.serving.adapter_files import HeldVersionOrder, packed_files
from mas.serving.model import BaseModel
from mas.serving.model_sources import Origin
from mas.serving.publication import AdapterVersion
from mas.serving.replicated_engine import ReplicatedEngine


class EngineVersionOrder(HeldVersionOrder, frozen=True, kw_only=True):
    """`number`: what other orders name the version by."""

    number: int


class GenerateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A request under a version that is loaded; `number` None: the bare base."""

    number: int | None
    request: Request


class ScoreOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A completion to score under a version that is loaded; `number` None: the bare base."""

    number: int | None
    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]


class VersionObjects:
    """The files of versions as objects of a cluster: one for all replicas, as long as one may load it."""

    def __init__(self, cluster: Cluster, origin: Origin) -> None:
        self._cluster, self._origin = cluster, origin
        self._held: dict[int, tuple[bytes, Ref]] = {}
        self._putting = asyncio.Lock()

    async def put(self, version: AdapterVersion) -> tuple[bytes, Ref]:
        """The order to load a version, and its files.

        Raises:
            ClusterError: they cannot be stored.
        """
        async with self._putting:
            if version.number not in self._held:
                digest, content = packed_files(version.weights, self._origin)
                order = EngineVersionOrder(ref=version.ref, digest=digest, number=version.number)
                self._held[version.number] = msgspec.json.encode(order), await self._cluster.put(content)
            return self._held[version.number]

    async def free(self, version: AdapterVersion) -> None:
        """Let go of a version's files; nothing if that was done."""
        if (held := self._held.pop(version.number, None)) is not None:
            await self._cluster.free(held[1])


class ProcessReplica:
    """Satisfies `mas.serving.replicated_engine.Replica`: an engine in a process of a cluster."""

    def __init__(self, cluster: Cluster, handle: Handle, objects: VersionObjects, dtype: str) -> None:
        self.dtype = dtype
        self.handle = handle
        self._cluster, self._objects = cluster, objects

    async def load(self, version: AdapterVersion) -> None:
        order, content = await self._objects.put(version)
        await self._call("load", order, content)

    async def unload(self, version: AdapterVersion) -> None:
        await self._objects.free(version)
        await self._call("unload", msgspec.json.encode(version.number))

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        order = GenerateOrder(number=_number(version), request=request)
        answer = await self._call("generate", msgspec.msgpack.encode(order))
        return msgspec.msgpack.decode(answer, type=tuple[Generation, ...])

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        order = ScoreOrder(number=_number(version), prompt_ids=prompt_ids, completion_ids=completion_ids)
        return msgspec.msgpack.decode(await self._call("score", msgspec.msgpack.encode(order)), type=tuple[float, ...])

    async def restart(self) -> None:
        """A fresh process in place of the one that is lost. A start that expires is one more loss."""
        try:
            self.handle = await self._cluster.respawn(self.handle)
        except (WorkerLost, CallExpired) as error:
            raise EngineLost(str(error)) from error

    async def close(self) -> None:
        """Nothing: the process ends with its cluster."""

    async def _call(self, method: str, payload: bytes, *content: Ref) -> bytes:
        """The answer of the process.

        Raises:
            EngineLost: it is gone. EngineError: what it raised, by the class of that, or it cannot be called so.
        """
        try:
            return await self.handle.call(method, payload, refs=content, timeout_s=None)
        except WorkerLost as error:
            raise EngineLost(str(error)) from error
        except CallFailed as error:
            raised = error_named(error.error_type, f"{self.handle.name}: {error.cause}")
            raise (raised if isinstance(raised, EngineError) else EngineError(str(error))) from error
        except ClusterError as error:
            raise EngineError(str(error)) from error


def _number(version: AdapterVersion | None) -> int | None:
    return None if version is None else version.number


async def start_engines(
    cluster: Cluster, options: WorkerOptions, factory: str, arguments: bytes, *, base: BaseModel
) -> ReplicatedEngine:
    """Start the replicas; the engine of them is the caller's to close.

    Args:
        factory, arguments: see `Cluster.spawn`; the process has `load`, `unload`, `generate` and `score`.

    Raises:
        ClusterError: they cannot be started.
    """
    spawns = [
        cluster.spawn(
            "engine",
            factory,
            arguments,
            cpus=options.worker_cpus,
            gpus=options.worker_gpus,
            threads=base.options.threads,
        )
        for _ in range(options.engines)
    ]
    handles = await together(spawns, "spawn")
    objects = VersionObjects(cluster, base.origin)
    replicas = {one.name: ProcessReplica(cluster, one, objects, base.options.dtype) for one in handles}
    return ReplicatedEngine(base, replicas, limits=base.limits)
