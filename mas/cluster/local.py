"""The cluster on this machine: each worker is a subprocess, each object a file."""

import asyncio
import os
import platform
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from mas.cluster.cleanup import CleanupProcess
from mas.cluster.connection import WorkerConnection
from mas.cluster.contract import Cluster
from mas.cluster.environment import clean_environment
from mas.cluster.frames import READ_AHEAD
from mas.cluster.link import WorkerLink
from mas.cluster.local_process import LocalProcess
from mas.cluster.objects import ObjectFiles
from mas.cluster.options import ClusterOptions
from mas.cluster.records import HeartbeatReply, Outcome, Ref, ResourceRequest, WorkerSpec
from mas.cluster.resources import Resources, Share, cores, visible_devices
from mas.core.errors import ClusterError, WorkerLost

_EXIT_S = 1.0
"""How long a process that has closed its socket may take to end."""


class LocalLink(WorkerLink):
    """One subprocess."""

    def __init__(
        self,
        name: str,
        spec: WorkerSpec,
        options: ClusterOptions,
        objects: ObjectFiles,
        resources: Resources,
        logs: Path,
        guard: CleanupProcess,
    ) -> None:
        self._name, self._spec, self._options = name, spec, options
        self._objects, self._resources, self._logs = objects, resources, logs
        self._guard = guard
        self.node = platform.node()
        self._share: Share | None = None
        self._process: LocalProcess | None = None
        self._connection: WorkerConnection | None = None

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        self._share = self._resources.take(self._name, self._spec.cpus, self._spec.gpus)
        ours, theirs = socket.socketpair()
        try:
            self._process = LocalProcess(theirs, self._variables(self._share), self._logs / self._name, self._guard)
        except BaseException:  # whatever it was, the socket is not left open
            ours.close()
            raise
        self.pid = self._process.pid
        reader, writer = await asyncio.open_unix_connection(sock=ours, limit=READ_AHEAD)
        explain = partial(self._explain, self._process, lost)
        limit = self._options.payload_mib << 20
        self._connection = WorkerConnection(self._name, reader, writer, limit, explain)
        return await self._connection.start(self._spec, str(self._objects.directory))

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        with self._objects.using(refs) as names:
            return await self._open().call(method, payload, names)

    async def ping(self) -> HeartbeatReply:
        return await self._open().ping()

    async def stop(self) -> None:
        await self._open().stop()
        if self._process is not None:
            await self._process.wait(None)

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.end()
        if self._connection is not None:
            await self._connection.closed()
        self._release()

    def _open(self) -> WorkerConnection:
        if self._connection is None:
            raise WorkerLost("it was not started")
        return self._connection

    async def _explain(self, process: LocalProcess, lost: Callable[[str], None], fault: str) -> str:
        """Wait for the end of the process, kill what is left, and say how it ended."""
        how = await process.end(0.0 if fault else _EXIT_S)
        how += f"; its output is in {self._logs / self._name}.err"
        self._release()
        lost(fault + how)
        return how

    def _release(self) -> None:
        if self._share is not None:
            self._resources.give_back(self._share)
            self._share = None

    def _variables(self, share: Share) -> dict[str, str]:
        names = (*self._options.environment, *self._spec.environment)
        variables = clean_environment(os.environ, names, self._spec.threads)
        return variables | {"CUDA_VISIBLE_DEVICES": visible_devices(share, os.environ)}


class LocalCluster(Cluster):
    """Subprocesses of the driver, which end when it does, however it ends."""

    def __init__(self, options: ClusterOptions, logs: Path) -> None:
        super().__init__(options, logs)
        self.host = "127.0.0.1"
        self._resources = Resources(options.cpus or cores(), options.gpus or 0)
        self._opened: tuple[ObjectFiles, CleanupProcess] | None = None

    async def put(self, content: bytes) -> Ref:
        return await self._parts()[0].put(content)

    async def free(self, ref: Ref) -> None:
        self._parts()[0].free(ref)

    async def _open(self) -> None:
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"the output of workers cannot be written to {self.logs}: {error}") from error
        files = ObjectFiles()
        try:
            self._opened = files, CleanupProcess(files.directory)
        except ClusterError:
            files.close()
            raise

    async def _close(self) -> None:
        if self._opened is not None:
            (files, guard), self._opened = self._opened, None
            files.close()
            guard.close()

    async def _reserve(self, requests: Sequence[ResourceRequest]) -> None:
        self._resources.reserve(requests)

    def _link(self, name: str, spec: WorkerSpec) -> WorkerLink:
        files, guard = self._parts()
        return LocalLink(name, spec, self.options, files, self._resources, self.logs, guard)

    def _parts(self) -> tuple[ObjectFiles, CleanupProcess]:
        if self._opened is None:
            raise ClusterError("the cluster holds nothing: it is closed, or was not entered with `async with`")
        return self._opened
