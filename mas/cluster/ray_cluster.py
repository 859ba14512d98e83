"""The cluster of Ray: each worker is a plain actor, each object one of Ray's store, what is reserved a placement group.

Ray gives a placement group all of its bundles or none. When a node is lost, Ray moves its bundles to other nodes as
soon as these have room. A group ends with the job that made it.

A process has at most one cluster of Ray. What blocks in Ray's interface runs in one thread, which lives as long as the
cluster: on Linux the processes of a Ray that is started here die with the thread that started them.
"""

import asyncio
import ipaddress
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mas.cluster.cleanup import CleanupProcess
from mas.cluster.contract import Cluster
from mas.cluster.handle import WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.ray_link import RayLink, RaySession, check_fits_node
from mas.cluster.ray_start import (
    changed_variables,
    check_listening,
    initial_options,
    keeping_loopback,
    ray_variables,
    restore_variables,
    session_directory,
)
from mas.cluster.records import Ref, ResourceRequest, WorkerSpec
from mas.cluster.resources import asked_text
from mas.core.errors import CallExpired, ClusterError, NoResources

_SLACK = 1e-9
_POLL_S = 0.25
"""How often Ray is asked whether it holds a group."""


class RayReservation:
    """One placement group. A worker that asks for nothing has no bundle: Ray allows no empty one."""

    def __init__(self, session: RaySession, requests: Sequence[ResourceRequest]) -> None:
        self._session = session
        self._requests = [request for request in requests if request.count and (request.cpus or request.gpus)]
        named = [(name, request) for request in self._requests for name in request.names]
        self._bundles = [_bundle(request) for _, request in named]
        self._index = {name: index for index, (name, _) in enumerate(named)}
        self._group: PlacementGroup | None = None

    async def make(self) -> None:
        """Hold all of it. What is not free is waited for, half of `start_s`.

        Raises:
            NoResources: there is less, or less is free; nothing is held.
        """
        if not self._bundles:
            return
        await self._session.blocking("counting resources", self._check_totals)
        limit_s = self._session.options.start_s / 2
        try:
            async with asyncio.timeout(limit_s):
                group = await self._session.blocking("reserving resources", self._make)
                while not await self._session.blocking("reserving resources", partial(_is_held, group)):  # noqa: ASYNC110 - Ray tells of no event
                    await asyncio.sleep(_POLL_S)
        except BaseException as error:  # also if cancelled: nothing stays held
            with suppress(ClusterError):  # the first error says more; leaving the cluster tries again
                await self.release()
            if isinstance(error, TimeoutError):
                raise await self._session.blocking("counting resources", partial(self._not_free, limit_s)) from None
            raise

    async def release(self) -> None:
        """Hold nothing any more; nothing if nothing is held."""
        await self._session.blocking("giving resources back", self._remove)

    def placing(self, name: str) -> Any:
        """Where Ray is to start a worker: in its bundle, or, if it has none, where there is room."""
        if self._group is None or name not in self._index:
            return "DEFAULT"
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=self._index[name])

    def is_waiting(self, name: str) -> bool:
        """Whether the bundle of a worker was lost with its node, and is on no other one yet. Asks Ray, and blocks."""
        if self._group is None or name not in self._index:
            return False
        return not _is_held(self._group)

    def _make(self) -> PlacementGroup:
        strategy = (self._session.options.strategy or "pack").upper()
        self._group = placement_group(self._bundles, strategy=strategy)
        return self._group

    def _remove(self) -> None:
        if self._group is not None:
            remove_placement_group(self._group)
            self._group = None

    def _check_totals(self) -> None:
        """Refuse at once what could never be held. To a Ray that others started, nodes may still come."""
        if self._session.options.address is None:
            for request in self._requests:
                check_fits_node(request.names[0], request.cpus, request.gpus)
            there = ray.cluster_resources()
            asked = (sum(bundle.get(name, 0) for bundle in self._bundles) for name in ("CPU", "GPU"))
            if any(number > there.get(name, 0) + _SLACK for number, name in zip(asked, ("CPU", "GPU"), strict=True)):
                raise self._not_free(0)

    def _not_free(self, waited_s: float) -> NoResources:
        there, free = ray.cluster_resources(), ray.available_resources()
        shown = " and ".join(
            f"{free.get(name, 0):g} of {there.get(name, 0):g} {name}s are free" for name in ("CPU", "GPU")
        )
        after = f"after {waited_s:g} s " if waited_s else ""
        return NoResources(
            f"{asked_text(self._requests)}, and {after}on all nodes {shown}, so none was started: take fewer "
            "processes, ask for less, add a node, or wait until what others hold is free"
        )


def _is_held(group: PlacementGroup) -> bool:
    return bool(placement_group_table(group)["state"] == "CREATED")


def _bundle(request: ResourceRequest) -> dict[str, float]:
    return {name: number for name, number in (("CPU", request.cpus), ("GPU", request.gpus)) if number}


class RayCluster(Cluster):
    """Actors of a Ray that is started on this machine, or that runs at `address`."""

    def __init__(self, options: ClusterOptions, logs: Path) -> None:
        super().__init__(options, logs)
        self.host = ""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cluster-ray")
        self._object_refs: dict[str, Any] = {}
        self._reservation: RayReservation | None = None
        self._session: Path | None = None
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
            self._session = session_directory()
            self._guard = CleanupProcess(self._session)
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
        # a folder within it, as Ray gives every user the right to write to its own
        directory = None if self._session is None else self._session / "r"
        logger = logging.getLogger("ray")
        level = logger.level
        logger.setLevel(logging.ERROR)  # it warns that it does not handle signals in this thread: they are the user's
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
                shutil.rmtree(self._session, ignore_errors=True)
            if self._guard is not None:
                self._guard.close()
                self._guard = None

    async def _reserve(self, requests: Sequence[ResourceRequest]) -> None:
        self._reservation = RayReservation(self, requests)
        await self._reservation.make()

    def _link(self, name: str, spec: WorkerSpec) -> WorkerLink:
        return RayLink(name, spec, self)
