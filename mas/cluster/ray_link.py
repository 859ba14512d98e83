"""A worker as an actor of Ray. The driver decides about restarts: the actor has none.

Calls go through a connection of the worker's own, which only who was given a token through Ray can use; objects go
through Ray.
"""

import asyncio
import os
import secrets
import signal
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec
import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from mas.cluster.connection import WorkerConnection
from mas.cluster.frames import READ_AHEAD
from mas.cluster.handle import WorkerLink
from mas.cluster.options import ClusterOptions
from mas.cluster.ray_actor import Placed, RayWorker, tls_context
from mas.cluster.records import HeartbeatReply, Outcome, Ref, WorkerSpec
from mas.core.errors import CallExpired, ClusterError, NoResources, WorkerLost

_POLL_S = 0.02
_END_S = 10.0
_PLACINGS = 3
"""Actors that are made one after the other for one worker, if Ray ends them before they run."""
_CONCURRENT = 1_000
"""Objects of one worker that Ray brings side by side."""
_CONNECT_S = 10.0
_EXPLAIN_S = 5.0
"""In which Ray must have noticed that a process has ended."""
_WATCH_S = 10.0
"""Between two questions to Ray whether a process lives: each costs milliseconds."""


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
        self._group: int | None = None
        self._connection: WorkerConnection | None = None
        self._token = secrets.token_bytes(32)
        self._brought = 0
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        """See `WorkerLink`. Placing it may take half of `start_s`."""
        placed = await self._placed()
        self._place(placed)
        reader, writer = await self._connect(placed)
        limit = self._session.options.payload_mib << 20
        self._connection = WorkerConnection(self._name, reader, writer, limit, partial(self._explain, lost))
        self._begin(self._watch(self._connection), "watch")
        return await self._connection.start(self._spec)

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
                    place = partial(self._actor.place.remote, self._variables(), self._token)
                    return msgspec.msgpack.decode(await self._answer(place), type=Placed)
            except TimeoutError:
                break
            except WorkerLost:
                if remaining == 0:
                    raise
        raise await self._session.blocking("counting resources", partial(self._not_placed, limit_s))

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        """See `WorkerLink`. Calls wait for the objects of those before them, so that all begin in order."""
        connection, objects = self._open(), self._session.object_refs(refs)
        if not objects:
            async with self._turn:
                pass
            return await connection.call(method, payload, ())
        actor, names = self._actor, [f"{self._brought}.{index}" for index in range(len(objects))]
        self._brought += 1
        bringing = asyncio.ensure_future(self._answer(lambda: actor.bring.remote(names, *objects)))
        try:
            async with self._turn:
                await asyncio.shield(bringing)
            return await connection.call(method, payload, names)
        finally:
            self._begin(self._drop_after(bringing, partial(actor.drop.remote, names)), "drop")

    async def ping(self) -> HeartbeatReply:
        return await self._open().ping()

    async def stop(self) -> None:
        """See `WorkerLink`. The process itself is ended by `kill`."""
        await self._open().stop()

    async def kill(self) -> None:
        """See `WorkerLink`. On the driver's machine it waits for the end; elsewhere Ray ends the process by itself."""
        group = self._group
        for task in self._tasks:
            task.cancel()
        if self._connection is not None:  # its end alone ends a worker that is not stopped
            await self._connection.close()
        if self._actor is not None:
            if group is not None and is_ray_process(group):  # not a later process of the same number
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
            await self._session.blocking(f"killing {self._name}", partial(ray.kill, self._actor))
            self._actor = None  # not before: if that was cancelled or expired, the next call kills it
        if group is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    while is_ray_process(group):  # noqa: ASYNC110 - nothing tells of the end of another's child
                        await asyncio.sleep(_POLL_S)
            self._session.note("-", group)
            self._group = None

    async def _connect(self, placed: Placed) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the worker, and say the token."""
        where, context = f"{placed.host}:{placed.port}", tls_context(ssl.PROTOCOL_TLS_CLIENT)
        for is_last in (False, True):  # the first time may have been missed because the event loop stood still
            try:
                async with asyncio.timeout(_CONNECT_S):
                    reader, writer = await asyncio.open_connection(
                        placed.host, placed.port, limit=READ_AHEAD, ssl=context
                    )
                break
            except OSError as error:  # a TimeoutError, an SSLError among them
                if isinstance(error, TimeoutError) and not is_last:
                    continue
                raise ClusterError(
                    f"{self._name} waits at {where} of node {self.node}, and cannot be reached from here "
                    f"({type(error).__name__}: {error}): let this machine connect to all ports of the others, with "
                    "the same RAY_TLS files if Ray uses TLS"
                ) from error
        writer.write(self._token)
        return reader, writer

    async def _watch(self, connection: WorkerConnection) -> None:
        """Ask Ray whether the process lives: a connection to a node that lost its power does not end by itself."""
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._answer(self._actor.ping.remote)
            except WorkerLost:
                connection.abort()
                return
            except ClusterError:
                pass  # Ray has other troubles

    async def _explain(self, lost: Callable[[str], None], fault: str) -> str:
        """Ask Ray how the process ended. One that sent what is no frame is killed; any other that lives ends itself
        when the connection ends."""
        how = f"its connection was closed; its output is in {self._session.logs / self._name}.err"
        try:
            if fault:
                await self._session.blocking(f"killing {self._name}", partial(ray.kill, self._actor))
            else:
                async with asyncio.timeout(_EXPLAIN_S):
                    await self._answer(self._actor.ping.remote)
        except WorkerLost as error:
            how = str(error)
        except (TimeoutError, ClusterError):
            pass
        finally:
            lost(fault + how)
        return how

    async def _drop_after(self, bringing: asyncio.Future[Any], drop: Callable[[], Any]) -> None:
        """Let the worker drop objects: they may still be on their way."""
        await asyncio.wait({bringing})
        if not bringing.cancelled() and bringing.exception() is None:
            with suppress(RayError):
                drop()

    def _begin(self, work: Coroutine[Any, Any, None], what: str) -> None:
        task = asyncio.create_task(work, name=f"cluster-{self._name}-{what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _place(self, placed: Placed) -> None:
        """Note where the process is. Ray makes each worker the leader of a group; the ones here are killed as such."""
        self.pid, self.node = placed.pid, placed.node[:12]
        if placed.host == self._session.host and is_ray_process(placed.pid) and os.getpgid(placed.pid) == placed.pid:
            self._group = placed.pid
            self._session.note("+", placed.pid)

    def _open(self) -> WorkerConnection:
        if self._connection is None or self._actor is None:
            raise WorkerLost("its actor was killed" if self._actor is None else "it has no connection")
        return self._connection

    def _make(self) -> Any:
        actor = ray.remote(RayWorker).options(
            name=None,
            num_cpus=self._spec.cpus,
            num_gpus=self._spec.gpus,
            max_restarts=0,
            max_task_retries=0,
            max_concurrency=_CONCURRENT,
            scheduling_strategy=self._session.placing(self._name),
        )
        output = str(self._session.logs / self._name)
        return actor.remote(self._spec.threads, self._spec.gpus, self._names(), output)

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

    async def _answer(self, ask: Callable[[], Any]) -> bytes:
        try:
            return cast("bytes", await ask())
        except RayActorError as error:
            raise WorkerLost("its process is gone: " + " ".join(str(error).split())) from None
        except RayTaskError as error:  # its text is a traceback
            raise ClusterError(f"{self._name}: {type(error.cause).__name__}: {error.cause}") from None
        except RayError as error:
            raise ClusterError(f"{self._name}: Ray: {' '.join(str(error).split())}") from None


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
