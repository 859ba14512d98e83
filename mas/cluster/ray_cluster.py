"""The cluster of Ray: each worker is a plain actor, each object one of Ray's store, what is reserved a placement group.

A process has at most one. What blocks in Ray's interface runs in one thread, which lives as long as the cluster: on
Linux the processes of a Ray that is started here die with the thread that started them.
"""

import asyncio
import ipaddress
import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from mas.cluster.cleanup import CleanupProcess
from mas.cluster.contract import Cluster
from mas.cluster.link import WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.ray_link import RayLink
from mas.cluster.ray_reservation import RayReservation
from mas.cluster.ray_start import (
    SessionDirectory,
    changed_variables,
    check_listening,
    initial_options,
    keeping_loopback,
    ray_variables,
    restore_variables,
)
from mas.cluster.records import Ref, ResourceRequest, WorkerSpec
from mas.core.errors import CallExpired, ClusterError


class RayCluster(Cluster):
    """Actors of a Ray that is started on this machine, or that runs at `address`."""

    def __init__(self, options: ClusterOptions, logs: Path) -> None:
        super().__init__(options, logs)
        self.host = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cluster-ray")
        self._object_refs: dict[str, Any] = {}
        self._reservation: RayReservation | None = None
        self._session: SessionDirectory | None = None
        self._guard: CleanupProcess | None = None
        self._variables: dict[str, str | None] = {}

    async def put(self, content: bytes) -> Ref:
        object_ref = await self.blocking(f"storing {len(content)} bytes", partial(ray.put, content))
        ref = Ref(key=object_ref.hex(), size=len(content))
        self._object_refs[ref.key] = object_ref
        return ref

    async def free(self, ref: Ref) -> None:
        """See `Cluster`. Ray removes the object when no call uses it."""
        self._object_refs.pop(ref.key, None)

    def object_refs(self, refs: Sequence[Ref]) -> list[Any]:
        """See `RaySession`.

        Raises:
            ClusterError: one was freed, or is of another cluster.
        """
        for ref in refs:
            if ref.key not in self._object_refs:
                raise ClusterError(f"object {ref.key} of {ref.size} bytes has been freed, or is of another cluster")
        return [self._object_refs[ref.key] for ref in refs]

    def placing(self, name: str) -> Any:
        return "DEFAULT" if self._reservation is None else self._reservation.placing(name)

    def is_waiting(self, name: str) -> bool:
        return self._reservation is not None and self._reservation.is_waiting(name)

    def note(self, sign: str, pid: int) -> None:
        if self._guard is not None:
            self._guard.note(sign, pid)

    async def blocking(self, what: str, work: Callable[[], Any]) -> Any:
        """See `RaySession`.

        Raises:
            CallExpired: it takes longer than `start_s`. ClusterError: Ray refuses.
        """
        try:
            async with asyncio.timeout(self.options.start_s):
                return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except TimeoutError:
            raise CallExpired(f"Ray: {what} took longer than start_s={self.options.start_s:g}") from None
        except (RayError, OSError, RuntimeError, ValueError) as error:
            text = " ".join(str(error).split())  # Ray's own text has many lines
            is_refused = isinstance(error, ConnectionError) and self.options.address
            hint = ". If it wants a token, export RAY_AUTH_MODE=token and its RAY_AUTH_TOKEN" if is_refused else ""
            raise ClusterError(f"Ray: {what}: {type(error).__name__}: {text}{hint}") from error

    async def _open(self) -> None:
        if ray.is_initialized():
            raise ClusterError("this process is a driver of Ray already: close that cluster, or call ray.shutdown()")
        if self.options.address not in (None, "auto"):
            await check_listening(str(self.options.address))
        if self.options.address is None:
            self._session = SessionDirectory()
            self._guard = CleanupProcess(self._session.path)
        before = dict(os.environ)
        os.environ.update(ray_variables(self.options.address, before))
        what = f"joining {self.options.address}" if self.options.address else "starting"
        try:
            self.host = await self.blocking(what, self._initialize)
            self._variables = changed_variables(before)
        except BaseException:  # also if cancelled: no Ray stays
            self._variables = changed_variables(before)
            with suppress(ClusterError):  # the first error says more
                await self._close()
            raise

    def _initialize(self) -> str:
        """Start or join; the address of this machine as Ray sees it."""
        directory = None if self._session is None else self._session.inner
        logger = logging.getLogger("ray")
        level = logger.level
        logger.setLevel(
            logging.ERROR
        )  # it warns of signals that it does not handle in this thread: they are the user's
        try:
            with keeping_loopback(self.options.address):
                ray.init(**initial_options(self.options, directory))
        finally:
            logger.setLevel(level)
        host: str = ray.util.get_node_ip_address()
        if self._session is not None and not ipaddress.ip_address(host).is_loopback:
            raise RuntimeError(f"it listens at {host}, not on loopback only: this version of Ray is not supported")
        return host

    async def _close(self) -> None:
        self._object_refs.clear()
        try:
            if self._reservation is not None:
                with suppress(ClusterError):  # Ray ends it with the job
                    await self._reservation.release()
            await self.blocking("ending", partial(ray.shutdown, wait_for_processes=True))
        finally:
            self._thread.shutdown(wait=False)
            restore_variables(self._variables)
            self._variables = {}
            if self._session is not None:
                self._session.remove()
            if self._guard is not None:
                self._guard.close()
                self._guard = None

    async def _reserve(self, requests: Sequence[ResourceRequest]) -> None:
        self._reservation = RayReservation(self, requests)
        await self._reservation.make()

    def _link(self, name: str, spec: WorkerSpec) -> WorkerLink:
        return RayLink(name, spec, self)
