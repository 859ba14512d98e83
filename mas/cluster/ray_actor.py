"""The worker's side under Ray: a plain actor around `WorkerObject`. What it takes and returns is bytes."""

import os
from pathlib import Path

import msgspec
from ray import get_runtime_context
from ray.util import get_node_ip_address

from mas.cluster.environment import is_passed_on, resident_bytes, thread_variables
from mas.cluster.exchange import CallServer
from mas.cluster.records import HeartbeatReply, WorkerSpec
from mas.cluster.worker_object import WorkerObject


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where an actor's process is."""

    pid: int
    node: str
    host: str
    """The address of its machine."""


class RayWorker:
    """An asynchronous actor: its calls run side by side in one event loop, as those of a local worker do.

    Args:
        spec: a WorkerSpec in MessagePack.
        names: of variables that the process keeps beside the usual ones, if its node has them.
        limit: the largest answer in bytes.
        output: a path without suffix, for what the process writes.
    """

    def __init__(self, spec: bytes, names: list[str], limit: int, output: str) -> None:
        self._spec = msgspec.msgpack.decode(spec, type=WorkerSpec)
        _redirect(Path(output))
        _clean(self._spec, names)
        self._object = WorkerObject(limit)
        self._calls = CallServer(self._object)

    async def place(self) -> bytes:
        """Where it is; a first answer."""
        node = get_runtime_context().get_node_id()
        return msgspec.msgpack.encode(Placed(pid=os.getpid(), node=node, host=get_node_ip_address()))

    async def start(self, variables: bytes) -> bytes:
        """Make the object. `variables`: name -> value of those that the driver passes on, in MessagePack."""
        os.environ.update(msgspec.msgpack.decode(variables, type=dict[str, str]))
        spec = self._spec
        return msgspec.msgpack.encode(await self._object.make(spec.factory, spec.arguments, spec.version))

    async def exchange(self, calls: bytes, *objects: bytes) -> bytes:
        """See `CallServer.exchange`. Ray itself keeps no order among calls of an asynchronous actor."""
        return await self._calls.exchange(calls, objects)

    async def cancel(self, number: int) -> None:
        """Cancel a call that runs, or that is still to come."""
        self._calls.cancel(number)

    async def ping(self) -> bytes:
        return msgspec.msgpack.encode(HeartbeatReply(rss_bytes=resident_bytes()))

    async def stop(self) -> None:
        """Cancel what runs, and close the object."""
        self._calls.cancel_all()
        await self._object.close()


def _redirect(output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    for descriptor, suffix in ((1, ".out"), (2, ".err")):
        with output.with_suffix(suffix).open("ab") as file:
            os.dup2(file.fileno(), descriptor)


def _clean(spec: WorkerSpec, names: list[str]) -> None:
    """Take away what the worker is not to see; Ray itself needs its own variables."""
    for name in list(os.environ):
        if not (name.startswith("RAY_") or is_passed_on(name, names)):
            del os.environ[name]
    os.environ.update(thread_variables(spec.threads))
    if spec.gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
