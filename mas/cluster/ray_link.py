"""A worker as an actor of Ray. The driver decides about restarts: the actor has none."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import ray
from ray.exceptions import RayActorError, RayError

from mas.cluster.exchange import CallSender
from mas.cluster.link import WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.ray_actor import Placed, RayWorker
from mas.cluster.records import HeartbeatReply, Outcome, Ref, WorkerSpec
from mas.core.errors import CallExpired, ClusterError, NoResources, WorkerLost

_POLL_S = 0.02
_END_S = 10.0
_PLACINGS = 3
"""Actors that are made one after the other for one worker, if Ray ends them before they run."""
_CONCURRENT = 10_000
"""Calls of one worker that Ray runs side by side, heartbeats among them."""


class RaySession(Protocol):
    """What a link needs of its cluster."""

    options: ClusterOptions
    logs: Path
    host: str
    """The address of the driver's machine."""

    def note(self, sign: str, pid: int) -> None:
        """A process group of this machine has begun (`+`) or ended (`-`)."""

    async def blocking(self, what: str, work: Callable[[], Any]) -> Any:
        """Run what blocks in the cluster's thread, within a time limit."""

    def object_refs(self, refs: Sequence[Ref]) -> list[Any]:
        """Ray's references of objects."""

    def placing(self, name: str) -> Any:
        """Ray's strategy for placing a worker: in what is reserved for it, or where there is room."""

    def is_waiting(self, name: str) -> bool:
        """Whether what was reserved for a worker was lost with a node, and is on no other one yet; blocks."""


class RayLink(WorkerLink):
    """One actor."""

    def __init__(self, name: str, spec: WorkerSpec, session: RaySession) -> None:
        self._name, self._spec, self._session = name, spec, session
        self._actor: Any = None
        self._lost: Callable[[str], None] | None = None
        self._group: int | None = None
        self._calls = CallSender(name, self._exchange, self._cancel)

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        """See `WorkerLink`. Placing it may take half of `start_s`."""
        self._place(await self._placed())
        self._lost = lost
        return self._outcome(await self._answer(self._actor.start.remote(self._variables())))

    async def _placed(self) -> Placed:
        """Make the actor and wait until it runs; again if its node goes before that."""
        limit_s = self._session.options.start_s / 2
        for remaining in reversed(range(_PLACINGS)):
            if self._session.placing(self._name) == "DEFAULT":  # a place that is held may be on a node still to come
                check = partial(check_fits_node, self._name, self._spec.cpus, self._spec.gpus)
                await self._session.blocking("counting resources", check)
            self._actor = await self._session.blocking(f"making {self._name}", self._make)
            try:
                async with asyncio.timeout(limit_s):
                    return msgspec.msgpack.decode(await self._answer(self._actor.place.remote()), type=Placed)
            except TimeoutError:
                break
            except WorkerLost:
                if remaining == 0:
                    raise
        raise await self._session.blocking("counting resources", partial(self._not_placed, limit_s))

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        objects = self._session.object_refs(refs)
        self._living()
        return await self._calls.call(method, payload, objects)

    async def ping(self) -> HeartbeatReply:
        return msgspec.msgpack.decode(await self._answer(self._living().ping.remote()), type=HeartbeatReply)

    async def stop(self) -> None:
        """See `WorkerLink`. The process itself is ended by `kill`."""
        await self._answer(self._living().stop.remote())

    async def kill(self) -> None:
        """See `WorkerLink`. On the driver's machine it waits for the end; elsewhere Ray ends the process by itself."""
        group = self._group
        if self._actor is not None:
            if group is not None and is_ray_process(group):  # not a later process of the same number
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            await self._session.blocking(f"killing {self._name}", partial(ray.kill, self._actor))
            self._actor = None  # not before: if that was cancelled or expired, the next call kills it
        await self._calls.close()
        if group is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    while is_ray_process(group):  # noqa: ASYNC110 - nothing tells of the end of another's child
                        await asyncio.sleep(_POLL_S)
            self._session.note("-", group)
            self._group = None

    async def _exchange(self, calls: bytes, objects: Sequence[Any]) -> bytes:
        try:
            answer = self._living().exchange.remote(calls, *objects)
        except RayError as error:
            raise ClusterError(f"{self._name}: Ray: {' '.join(str(error).split())}") from None
        return await self._answer(answer)

    def _cancel(self, number: int) -> None:
        """Cancel a call, which may have come or never will."""
        if self._actor is not None:
            with suppress(RayError):
                self._actor.cancel.remote(number)

    def _place(self, placed: Placed) -> None:
        """Note where the process is. Ray makes each worker the leader of a group; the ones here are killed as such."""
        self.pid, self.node = placed.pid, placed.node[:12]
        if placed.host == self._session.host and is_ray_process(placed.pid) and os.getpgid(placed.pid) == placed.pid:
            self._group = placed.pid
            self._session.note("+", placed.pid)

    def _living(self) -> Any:
        if self._actor is None:
            raise WorkerLost("its actor was killed")
        return self._actor

    def _make(self) -> Any:
        options = self._session.options
        actor = ray.remote(RayWorker).options(
            name=None,
            num_cpus=self._spec.cpus,
            num_gpus=self._spec.gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_CONCURRENT,
            scheduling_strategy=self._session.placing(self._name),
        )
        limit = options.payload_mib << 20
        output = str(self._session.logs / self._name)
        return actor.remote(msgspec.msgpack.encode(self._spec), self._names(), limit, output)

    def _names(self) -> list[str]:
        """Of variables that the worker gets beside the usual ones."""
        return [*self._session.options.environment, *self._spec.environment]

    def _variables(self) -> bytes:
        """Those of them that the driver has, with their values: secrets, which must not be arguments of the actor's
        constructor nor its `runtime_env`, as Ray's control service stores these."""
        return msgspec.msgpack.encode({name: os.environ[name] for name in self._names() if name in os.environ})

    def _not_placed(self, limit_s: float) -> ClusterError:
        free = ray.available_resources()
        cpus, gpus = free.get("CPU", 0.0), free.get("GPU", 0.0)
        if self._session.is_waiting(self._name):
            return NoResources(
                f"{self._name}: the {self._spec.cpus:g} CPUs and {self._spec.gpus:g} GPUs that were reserved for it "
                f"went with a node, and after {limit_s:g} s no other node has room for them; {cpus:g} CPUs and "
                f"{gpus:g} GPUs of all nodes are free: add a node, and give the command again"
            )
        is_reserved = self._session.placing(self._name) != "DEFAULT"
        if not is_reserved and (self._spec.cpus > cpus or self._spec.gpus > gpus):
            return NoResources(
                f"{self._name} asks for {self._spec.cpus:g} CPUs and {self._spec.gpus:g} GPUs; after {limit_s:g} s "
                f"{cpus:g} CPUs and {gpus:g} GPUs of all nodes are free: stop a worker, ask for less, or add a node"
            )
        return CallExpired(
            f"{self._name}: Ray started no process for it within {limit_s:g} s, though "
            + ("what it asks for is reserved for it" if is_reserved else f"{cpus:g} CPUs are free")
        )

    async def _answer(self, answer: Any) -> bytes:
        try:
            return cast("bytes", await answer)
        except RayActorError as error:
            reason = "its process is gone: " + " ".join(str(error).split())
            if self._lost is not None:
                self._lost(reason)
            raise WorkerLost(reason) from None
        except RayError as error:
            raise ClusterError(f"{self._name}: Ray: {' '.join(str(error).split())}") from None

    def _outcome(self, answer: bytes) -> Outcome:
        outcome: Outcome = msgspec.msgpack.decode(answer, type=Outcome)
        return outcome


def check_fits_node(name: str, cpus: float, gpus: float) -> None:
    """Refuse at once what no node could ever hold. Asks Ray, and blocks.

    Raises:
        NoResources: says what the nodes have.
    """
    asked = {"CPU": cpus, "GPU": gpus}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(name, 0) >= number for name, number in asked.items()) for node in nodes):
        shown = "; ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
        raise NoResources(
            f"{name} asks for {cpus:g} CPUs and {gpus:g} GPUs on one node; the nodes have {shown or 'nothing'}: ask "
            "for less, add a node, or raise `cpus` or `gpus` of the cluster"
        )


def is_ray_process(pid: int) -> bool:
    """Whether a process of this machine is a worker of Ray that runs; False where /proc does not tell."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return words.startswith(b"ray::")
