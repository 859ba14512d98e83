"""The cluster on this machine: each worker is a subprocess, each object a file."""

from collections.abc import Sequence
from pathlib import Path

from mas.cluster.cleanup import Guard
from mas.cluster.contract import Cluster
from mas.cluster.link import Link
from mas.cluster.local_link import LocalLink
from mas.cluster.objects import ObjectFiles
from mas.cluster.options import ClusterOptions
from mas.cluster.records import Ref, ResourceRequest, WorkerSpec
from mas.cluster.resources import Resources, cores
from mas.core.errors import ClusterError


class LocalCluster(Cluster):
    """Subprocesses of the driver, which end when it does, however it ends."""

    def __init__(self, options: ClusterOptions, logs: Path) -> None:
        super().__init__(options, logs)
        self.host = "127.0.0.1"
        self._resources = Resources(options.cpus or cores(), options.gpus or 0)
        self._opened: tuple[ObjectFiles, Guard] | None = None

    async def put(self, content: bytes) -> Ref:
        """See `Cluster`."""
        return await self._parts()[0].put(content)

    async def free(self, ref: Ref) -> None:
        """See `Cluster`."""
        self._parts()[0].free(ref)

    async def _open(self) -> None:
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"the output of workers cannot be written to {self.logs}: {error}") from error
        files = ObjectFiles()
        try:
            self._opened = files, Guard(files.directory)
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

    def _link(self, name: str, spec: WorkerSpec) -> Link:
        files, guard = self._parts()
        return LocalLink(name, spec, self.options, files, self._resources, self.logs, guard)

    def _parts(self) -> tuple[ObjectFiles, Guard]:
        if self._opened is None:
            raise ClusterError("the cluster holds nothing: it is closed, or was not entered with `async with`")
        return self._opened
