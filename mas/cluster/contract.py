"""The contract `Cluster`: what a driver may do, whatever runs the processes; and how one is opened."""

import asyncio
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from mas.cluster.handle import Handle, WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.records import ProcessStatus, Ref, ResourceRequest, WorkerSpec
from mas.core.errors import ClusterError, ConfigError, MissingPackage

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
CLUSTERS = {"local": "mas.cluster.local:LocalCluster", "ray": "mas.cluster.ray_cluster:RayCluster"}
_entered: "list[Cluster]" = []


def open_clusters(directory: Path) -> "list[Cluster]":
    """The clusters of this process that were entered and not left, and whose logs are inside this directory."""
    return [cluster for cluster in _entered if cluster.logs.is_relative_to(directory.absolute())]


class Cluster(ABC):
    """The workers of one driver. An asynchronous context manager: leaving it ends every worker.

    Args:
        logs: a directory, made if missing, in which each worker's output is in `NAME.out` and `NAME.err`, on the
            machine that the worker runs on.

    Raises:
        ClusterError: on entering, the cluster cannot be started or joined.

    Attributes:
        host: the address at which workers reach the driver's machine, once it is entered.
    """

    host: str

    def __init__(self, options: ClusterOptions, logs: Path) -> None:
        self.options, self.logs = options, logs.absolute()
        self._handles: dict[str, Handle] = {}
        self._failed: list[Handle] = []
        """Of starts again that failed. To kill their processes may have taken too long."""
        self._counts: dict[str, int] = {}
        self._reserved: dict[str, ResourceRequest] = {}
        self._is_open = self._is_closed = False

    async def __aenter__(self) -> Self:
        if self._is_open or self._is_closed:
            raise ClusterError("a cluster is entered once: open another one")
        await self._open()
        self._is_open = True
        _entered.append(self)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def reserve(self, requests: Sequence[ResourceRequest]) -> None:
        """Hold CPUs and GPUs for workers before the first one starts: for all of them, or for none.

        `spawn` and `respawn` start the workers of these kinds on what is held for them; it is given back when the
        cluster is left. More workers than that, and those of other kinds, take what is free.

        Args:
            requests: one of each kind. A count of 0 asks for nothing.

        Raises:
            NoResources: the cluster has not, or not free, what all ask for together; nothing is held.
            ConfigError: a request that no worker could make.
            ClusterError: resources were reserved, or a worker was started, before; or it was not entered.
        """
        for request in requests:
            _check_share(request.kind, request.cpus, request.gpus)
        if len({request.kind for request in requests}) < len(requests):
            raise ConfigError("two requests are of the same kind: use one request for each kind")
        if not self._is_open:
            raise ClusterError("nothing can be reserved: the cluster is closed, or was not entered with `async with`")
        if self._reserved or self._handles:
            raise ClusterError("resources are reserved once, before the first worker is started: ask for all together")
        await self._reserve(requests)
        self._reserved = {name: request for request in requests for name in request.names}

    async def spawn(
        self,
        kind: str,
        factory: str,
        arguments: bytes = b"",
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
        threads: int | None = None,
        environment: Sequence[str] = (),
    ) -> Handle:
        """Start a process in which `factory(arguments)` makes the worker, and wait until it has.

        Args:
            kind: what the worker is, such as `rollout`: the first part of its name.
            factory: `package.module:function`, to be imported in the worker; may be asynchronous.
            cpus, gpus: what it takes of the cluster's. GPUs are a whole number, or less than 1 for a part of one.
            threads: of numeric libraries. None: as many as `cpus`, at least 1.
            environment: names of variables that it gets beside the usual ones and those of the cluster's options.

        Raises:
            NoResources: the cluster has not, or not free, what is asked for, or lost what was reserved for it.
            CallFailed: the factory raised, or cannot be imported, or mas has another version there; holds the remote
                traceback.
            WorkerLost: the process ended before the factory returned.
            CallExpired: that took longer than `start_s`; the process was killed.
            ConfigError: an argument that no worker could be made of.
        """
        _check_share(kind, cpus, gpus)
        if not _FACTORY.fullmatch(factory):
            raise ConfigError(f"factory {factory!r} is no dotted name: use package.module:function")
        threads = max(1, math.floor(cpus)) if threads is None else threads
        spec = WorkerSpec(
            kind=kind,
            factory=factory,
            arguments=arguments,
            cpus=cpus,
            gpus=gpus,
            threads=threads,
            environment=tuple(environment),
        )
        index = self._counts.get(kind, 0)
        held = self._reserved.get(f"{kind}-{index}")
        if held is not None and (held.cpus, held.gpus) != (cpus, gpus):
            raise ConfigError(
                f"{kind}-{index} asks for {cpus:g} CPUs and {gpus:g} GPUs, and {held.cpus:g} and {held.gpus:g} were "
                "reserved for it: use the same numbers"
            )
        self._counts[kind] = index + 1
        handle = self._register(f"{kind}-{index}", spec, 0)
        await handle.start()
        return handle

    async def respawn(self, handle: Handle) -> Handle:
        """A fresh process under the same name, made as the first one was; those of before are killed if they live.

        Raises:
            As `spawn`, and CallExpired: an old process could not be killed in time. The same handle can then be started
                again, and what lives of this try is killed first. ClusterError: the handle is not the newest of its
                name, or of another cluster.
        """
        if self._handles.get(handle.name) is not handle:
            raise ClusterError(f"{handle.name} cannot be started again: its handle is not this cluster's newest of it")
        fresh = self._register(handle.name, handle.spec, handle.restarts + 1)
        try:
            for failed in [failed for failed in self._failed if failed.name == handle.name]:
                await failed.kill()
                self._failed.remove(failed)
            await handle.kill()
            await handle.close()
            await fresh.start()
        except BaseException:  # also if cancelled: the old handle can be tried again
            self._handles[handle.name] = handle
            self._failed.append(fresh)
            raise
        return fresh

    def members(self) -> list[ProcessStatus]:
        """Every worker that was ever spawned, each as its last process is or was."""
        return [handle.member() for handle in self._handles.values()]

    async def close(self) -> None:
        """Stop every worker, side by side, and leave no process; once is enough, more do nothing.

        Raises:
            ClusterError: one could not be ended, though all others were, and what `_open` made is undone.
        """
        if self._is_closed:
            return
        self._is_open, self._is_closed = False, True
        if self in _entered:
            _entered.remove(self)
        try:
            handles = [*self._handles.values(), *self._failed]
            ends = await asyncio.gather(*(handle.close() for handle in handles), return_exceptions=True)
        finally:
            await self._close()
        for end in ends:
            if isinstance(end, BaseException):
                raise end

    def _register(self, name: str, spec: WorkerSpec, restarts: int) -> Handle:
        if not self._is_open:
            raise ClusterError(f"{name} cannot be started: the cluster is closed, or was not entered with `async with`")
        handle = Handle(name, spec, self._link(name, spec), self.options, restarts)
        self._handles[name] = handle
        return handle

    @abstractmethod
    async def put(self, content: bytes) -> Ref:
        """Hold bytes for calls, until `free` or `close`: any number of workers read them without the driver.

        Raises:
            ClusterError: they cannot be stored.
        """

    @abstractmethod
    async def free(self, ref: Ref) -> None:
        """Let go of an object. Calls that were made with it still get it; nothing if it was freed before."""

    @abstractmethod
    async def _open(self) -> None:
        """Make it ready for workers."""

    @abstractmethod
    async def _close(self) -> None:
        """Undo `_open`; no worker runs any more."""

    @abstractmethod
    async def _reserve(self, requests: Sequence[ResourceRequest]) -> None:
        """Hold all of this by the workers' names until `_close`, or raise NoResources and hold nothing."""

    @abstractmethod
    def _link(self, name: str, spec: WorkerSpec) -> WorkerLink:
        """A way to a process that has not started."""


def _check_share(kind: str, cpus: float, gpus: float) -> None:
    if not _KIND.fullmatch(kind):
        raise ConfigError(f"kind {kind!r} is no name: use up to 32 lower-case letters, digits, - and _")
    if not (math.isfinite(cpus) and cpus >= 0):
        raise ConfigError(f"cpus={cpus} is not possible: use 0 or more")
    if not (math.isfinite(gpus) and gpus >= 0) or (gpus > 1 and gpus != int(gpus)):
        raise ConfigError(f"gpus={gpus} is not possible: use a whole number, or a part of one GPU below 1")


def check_installed(options: ClusterOptions) -> None:
    """Refuse a kind of cluster whose package is missing, without importing it.

    Raises:
        MissingPackage: says how to install it.
    """
    try:
        is_there = options.kind == "local" or find_spec("ray") is not None
    except ValueError:  # a module without a specification stands in its place
        is_there = False
    if not is_there:
        raise MissingPackage(
            f"cluster.kind={options.kind} needs the package 'ray': pip install 'mas[ray]'; kind=local does without it"
        )


def open_cluster(options: ClusterOptions, logs: Path) -> Cluster:
    """A cluster to be entered with `async with`; see `Cluster` for the arguments.

    Raises:
        MissingPackage: see `check_installed`.
    """
    check_installed(options)
    module, _, name = CLUSTERS[options.kind].partition(":")
    cluster: Cluster = getattr(import_module(module), name)(options, logs)
    return cluster
