"""The cluster on this machine: each worker is a subprocess, each object a file.

A subprocess leads a process group of its own: it is started, watched, and ended with all that it has started. Objects
are files in a directory that only this user can enter, read by workers as they need them.
"""

import asyncio
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from mas.cluster.cleanup import CleanupProcess
from mas.cluster.connection import WorkerConnection
from mas.cluster.contract import Cluster
from mas.cluster.environment import clean_environment
from mas.cluster.frames import READ_AHEAD
from mas.cluster.handle import WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.records import HeartbeatReply, Outcome, Ref, ResourceRequest, WorkerSpec
from mas.cluster.resources import Resources, Share, cores, visible_devices
from mas.core.errors import ClusterError, WorkerLost

_POLL_S = 0.01
_EXIT_S = 1.0
"""How long a process that has closed its socket may take to end."""


class LocalProcess:
    """A worker's process. Made in the thread of the event loop: on Linux it dies with the thread that started it.

    Args:
        connection: the worker's end of the socket, closed here.

    Raises:
        ClusterError: it cannot be started, or its output cannot be written.
    """

    def __init__(
        self, connection: socket.socket, variables: Mapping[str, str], output: Path, cleaner: CleanupProcess
    ) -> None:
        words = [sys.executable, "-P", "-m", "mas.cluster.worker", str(connection.fileno()), str(os.getpid())]
        try:
            with connection, output.with_suffix(".out").open("ab") as out, output.with_suffix(".err").open("ab") as err:
                self._process = subprocess.Popen(
                    words,
                    env=dict(variables),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=[connection.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(f"no worker can be started with its output in {output}: {error}") from error
        self._guard = cleaner
        cleaner.note("+", self.pid)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether it has; it is not yet reaped, so that its number is still its own."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    async def wait(self, limit_s: float | None) -> bool:
        """Wait until it has ended; False: time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not self.has_ended():  # noqa: ASYNC110 - works on every Unix, without a thread
                    await asyncio.sleep(_POLL_S)
        return self.has_ended()

    async def end(self, grace_s: float = 0.0) -> str:
        """Wait `grace_s` for it, kill it and its group, reap it, and say how it ended.

        One that cannot be killed (it waits for a device) is left after ten seconds.
        """
        await self.wait(grace_s)
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if not await self.wait(10.0):
                return f"process {self.pid} cannot be killed"
            self._process.wait()
            self._guard.note("-", self.pid)
        return describe_exit(self._process.returncode)


def describe_exit(code: int) -> str:
    """A return code of subprocess in words."""
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"


class ObjectFiles:
    """A directory of objects. A file is removed when its object is freed and no call uses it.

    Raises:
        ClusterError: no temporary directory can be made.
    """

    def __init__(self) -> None:
        try:
            self.directory = Path(tempfile.mkdtemp(prefix="mas-cluster-"))  # mode 0700
        except OSError as error:
            raise ClusterError(f"no directory for objects in {tempfile.gettempdir()}: {error}; set TMPDIR") from error
        self._refs: dict[str, Ref] = {}
        self._uses: Counter[str] = Counter()
        self._next = 0

    async def put(self, content: bytes) -> Ref:
        """Write an object.

        Raises:
            ClusterError: the disk is full, or the directory is gone.
        """
        ref = Ref(key=f"{self._next:06d}", size=len(content))
        self._next += 1
        path = self._path(ref)
        try:
            await asyncio.to_thread(path.write_bytes, content)
        except OSError as error:
            path.unlink(missing_ok=True)
            raise ClusterError(f"an object of {len(content) >> 20} MiB cannot be written to {path}: {error}") from error
        self._refs[ref.key] = ref
        return ref

    def free(self, ref: Ref) -> None:
        """Forget an object; nothing if it is not there."""
        if self._refs.get(ref.key) == ref:
            del self._refs[ref.key]
            self._remove_unused(ref)

    @contextmanager
    def using(self, refs: Sequence[Ref]) -> Iterator[list[str]]:
        """The names of the objects' files, which stay at least as long as the block.

        Raises:
            ClusterError: one was freed, or is of another cluster.
        """
        for ref in refs:
            if self._refs.get(ref.key) != ref:
                raise ClusterError(f"object {ref.key} of {ref.size} bytes has been freed, or is of another cluster")
        self._uses.update(ref.key for ref in refs)
        try:
            yield [ref.key for ref in refs]
        finally:
            self._uses.subtract(ref.key for ref in refs)
            for ref in refs:
                self._remove_unused(ref)

    def close(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def _remove_unused(self, ref: Ref) -> None:
        if ref.key not in self._refs and self._uses[ref.key] <= 0:
            del self._uses[ref.key]
            self._path(ref).unlink(missing_ok=True)

    def _path(self, ref: Ref) -> Path:
        return self.directory / ref.key


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
