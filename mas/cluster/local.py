"""The cluster on this machine: each worker is a subprocess, each object a file."""

import asyncio
import os
import platform
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from mas.cluster.cleanup import CleanupProcess
from mas.cluster.contract import Cluster
from mas.cluster.environment import clean_environment
from mas.cluster.frames import (
    READ_AHEAD,
    CallRequest,
    CancelRequest,
    CorruptFrame,
    PingRequest,
    Request,
    StartRequest,
    StopRequest,
    read_reply,
    write_frame,
)
from mas.cluster.link import WorkerLink
from mas.cluster.local_process import LocalProcess
from mas.cluster.objects import ObjectFiles
from mas.cluster.options import ClusterOptions
from mas.cluster.records import FailedCall, HeartbeatReply, Outcome, Ref, ResourceRequest, WorkerSpec
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
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._next = 0

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        self._share = self._resources.take(self._name, self._spec.cpus, self._spec.gpus)
        ours, theirs = socket.socketpair()
        try:
            self._process = LocalProcess(theirs, self._variables(self._share), self._logs / self._name, self._guard)
        except BaseException:  # whatever it was, the socket is not left open
            ours.close()
            raise
        self.pid = self._process.pid
        reader, self._writer = await asyncio.open_unix_connection(sock=ours, limit=READ_AHEAD)
        name = f"cluster-{self._name}-replies"
        self._reader = asyncio.create_task(self._read(reader, self._process, lost), name=name)
        limit = self._options.payload_mib << 20
        begin = StartRequest(
            id=self._number(),
            factory=self._spec.factory,
            arguments=self._spec.arguments,
            objects=str(self._objects.directory),
            limit=limit,
            version=self._spec.version,
        )
        return await self._ask(begin)

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        with self._objects.using(refs) as names:
            request = CallRequest(id=self._number(), method=method, payload=payload, objects=names)
            try:
                return await self._ask(request)
            except asyncio.CancelledError:
                self._cancel(request.id)
                raise

    async def ping(self) -> HeartbeatReply:
        outcome = await self._ask(PingRequest(id=self._number()))
        if isinstance(outcome, FailedCall):
            raise WorkerLost(f"a heartbeat failed: {outcome.text}")
        try:
            return msgspec.msgpack.decode(outcome.payload, type=HeartbeatReply)
        except msgspec.DecodeError as error:
            raise WorkerLost(f"it sent a heartbeat that is none: {error}") from error

    async def stop(self) -> None:
        await self._ask(StopRequest(id=self._number()))
        if self._process is not None:
            await self._process.wait(None)

    async def kill(self) -> None:
        if self._process is not None:
            await self._process.end()
        if self._reader is not None:
            await asyncio.wait({self._reader})
        self._release()

    def _release(self) -> None:
        if self._share is not None:
            self._resources.give_back(self._share)
            self._share = None

    def _variables(self, share: Share) -> dict[str, str]:
        names = (*self._options.environment, *self._spec.environment)
        variables = clean_environment(os.environ, names, self._spec.threads)
        return variables | {"CUDA_VISIBLE_DEVICES": visible_devices(share, os.environ)}

    async def _ask(self, request: Request) -> Outcome:
        if self._writer is None or self._reader is None or self._reader.done():
            raise WorkerLost("its connection is closed")
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = answer
        try:
            await write_frame(self._writer, request)
            return await answer
        except ConnectionError as error:
            await asyncio.wait({self._reader})  # says why
            raise WorkerLost("its connection is closed") from error
        finally:
            self._waiting.pop(request.id, None)

    def _cancel(self, number: int) -> None:
        """Tell the worker, without waiting until it has read that."""
        if self._writer is not None and not self._writer.is_closing():
            body = msgspec.msgpack.encode(CancelRequest(id=number))
            self._writer.write(len(body).to_bytes(4) + body)

    async def _read(self, reader: asyncio.StreamReader, process: LocalProcess, lost: Callable[[str], None]) -> None:
        """Hand replies to those who wait, until the connection or the process ends; then kill what is left."""
        reason = ""
        try:
            while True:
                reply = await read_reply(reader, self._options.payload_mib << 20)
                if not 0 <= reply.id < self._next:
                    raise CorruptFrame(f"a reply to request {reply.id}, which was never sent")
                answer = self._waiting.get(reply.id)  # None: cancelled
                if answer is not None and not answer.done():
                    answer.set_result(reply.outcome)
        except CorruptFrame as error:
            reason = f"it sent {error}; it was killed. "
        except EOFError:
            pass
        how = await process.end(0.0 if reason else _EXIT_S)
        reason = f"{reason}{how}; its output is in {self._logs / self._name}.err"
        self._release()
        lost(reason)
        if self._writer is not None:
            self._writer.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(WorkerLost(reason))

    def _number(self) -> int:
        self._next += 1
        return self._next - 1


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
