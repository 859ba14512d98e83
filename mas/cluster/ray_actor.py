"""The worker's side under Ray: an actor that opens a port for its driver, and is given objects. What it takes and
returns is bytes.

Ray places and watches the process, and brings the objects. Calls go through a connection, as those of a local worker:
a call through Ray takes milliseconds more, and its answer goes through the object store if it is large.

These connections are encrypted where Ray's own are: by the same variables, with the same files. RAY_USE_TLS=1 with
RAY_TLS_SERVER_CERT, RAY_TLS_SERVER_KEY and RAY_TLS_CA_CERT: both sides show a certificate.
"""

import asyncio
import hmac
import os
import ssl
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
from ray import get_runtime_context
from ray.util import get_node_ip_address

from mas.cluster.environment import is_passed_on, thread_variables
from mas.cluster.frames import READ_AHEAD
from mas.cluster.worker import Server, serve
from mas.core.errors import ClusterError

_TOKEN_S = 10.0
"""In which a client must say the token."""
_CLIENTS = 16
"""Clients at once that have not said it; more are sent away."""


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where an actor's process is, and where it waits for its driver."""

    pid: int
    node: str
    host: str
    """The address of its machine."""
    port: int


class RayWorker:
    """An asynchronous actor.

    Args:
        threads, gpus: of the worker's WorkerSpec.
        names: of variables that the process keeps beside the usual ones, if its node has them.
        output: a path without suffix, for what the process writes.
    """

    def __init__(self, threads: int, gpus: float, names: list[str], output: str) -> None:
        _redirect(Path(output))
        _clean(threads, gpus, names)
        self._objects: dict[str, bytes] = {}
        self._listening: asyncio.Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self._clients = 0

    async def place(self, variables: bytes, token: bytes) -> bytes:
        """Open a port of this machine's address in the cluster; the first client that says the token is the driver.

        Args:
            variables: name -> value of those that the driver passes on, in MessagePack.
        """
        os.environ.update(msgspec.msgpack.decode(variables, type=dict[str, str]))
        host, node = get_node_ip_address(), get_runtime_context().get_node_id()
        accept = partial(self._accept, token)
        context = tls_context(ssl.PROTOCOL_TLS_SERVER)
        self._listening = await asyncio.start_server(accept, host, 0, limit=READ_AHEAD, ssl=context)
        port = self._listening.sockets[0].getsockname()[1]
        return msgspec.msgpack.encode(Placed(pid=os.getpid(), node=node, host=host, port=port))

    async def bring(self, names: list[str], *contents: bytes) -> None:
        """Hold objects for a call that is to come."""
        self._objects.update(zip(names, contents, strict=True))

    async def drop(self, names: list[str]) -> None:
        """Let go of them."""
        for name in names:
            self._objects.pop(name, None)

    async def ping(self) -> None:
        """Answers while the process lives; Ray says in its stead how it ended."""

    async def _accept(self, token: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        given = b""
        if self._clients == _CLIENTS:
            writer.close()
            return
        self._clients += 1
        with suppress(TimeoutError, asyncio.IncompleteReadError, OSError):
            async with asyncio.timeout(_TOKEN_S):
                given = await reader.readexactly(len(token))
        self._clients -= 1
        if self._serving is not None or self._listening is None or not hmac.compare_digest(given, token):
            writer.close()
            return
        self._listening.close()  # the others wait in vain
        self._serving = asyncio.create_task(serve(Server(reader, writer, self._objects.__getitem__)), name="serve")
        try:
            await self._serving
        finally:
            writer.close()  # if the object's `close` failed: the driver need not wait for an answer


def _redirect(output: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    for descriptor, suffix in ((1, ".out"), (2, ".err")):
        with output.with_suffix(suffix).open("ab") as file:
            os.dup2(file.fileno(), descriptor)


def _clean(threads: int, gpus: float, names: list[str]) -> None:
    """Take away what the worker is not to see; Ray itself needs its own variables."""
    for name in list(os.environ):
        if not (name.startswith("RAY_") or is_passed_on(name, names)):
            del os.environ[name]
    os.environ.update(thread_variables(threads))
    if gpus == 0:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def tls_context(protocol: int) -> ssl.SSLContext | None:
    """Of one side of a connection; None: Ray uses no TLS. Certificates are checked, names in them are not, as Ray has
    it: nodes have addresses.

    Args:
        protocol: `ssl.PROTOCOL_TLS_SERVER` of the side that is connected to, `ssl.PROTOCOL_TLS_CLIENT` of the other.

    Raises:
        ClusterError: a file is not named, or cannot be read.
    """
    if os.environ.get("RAY_USE_TLS", "0").lower() not in ("1", "true"):
        return None
    files = {name: os.environ.get(f"RAY_TLS_{name}", "") for name in ("SERVER_CERT", "SERVER_KEY", "CA_CERT")}
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(files["SERVER_CERT"], files["SERVER_KEY"])
        context.load_verify_locations(files["CA_CERT"])
    except OSError as error:  # an SSLError among them
        named = ", ".join(f"RAY_TLS_{name}={path or '(not set)'}" for name, path in files.items())
        raise ClusterError(f"RAY_USE_TLS is on, and a file of {named} cannot be used: {error}") from error
    return context
