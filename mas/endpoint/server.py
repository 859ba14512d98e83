"""An application on an address: a server inside the running event loop, that ends when the block does."""

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from mas.core.errors import ConfigError

DRAIN_S = 30.0
"""How long a closing server lets requests in flight go on."""
_LINGER_S = 2
"""How long connections may take to close after that."""
_IDLE_S = 75
"""How long a connection may be idle: longer than clients keep one (5 s in httpx and openai), or they would send on a
connection that is just being closed."""


def bind(host: str, port: int, *, has_key: bool) -> socket.socket:
    """A socket that listens at the address, where clients wait until somebody serves. Port 0: any free one.

    Raises:
        ConfigError: there is no such address here, the port is taken or may not be had, or other machines could ask
            and there is no key.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise ConfigError(f"no address for --host {host!r} and --port {port}: {error}") from error
    if not has_key and not all(ipaddress.ip_address(address[0]).is_loopback for *_, address in found):
        raise ConfigError(
            f"--host {host} lets other machines ask, and there is no key. Set one in the environment, such as "
            "MAS_API_KEY=$(openssl rand -hex 24), or keep --host 127.0.0.1"
        )
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()  # now: two sockets may be bound to one port, only one of them may listen
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"{host}:{port} cannot be listened at: {error.strerror}. Choose another --port, or 0 for any free one"
        ) from error
    return listener


@asynccontextmanager
async def running(
    app: Starlette, listener: socket.socket | None = None, *, drain_s: float = DRAIN_S
) -> AsyncIterator[str]:
    """Serve an application of `build_app` while the block runs; gives its address, such as `http://127.0.0.1:8000`.

    When the block ends nobody is let in any more, and requests in flight have `drain_s` seconds to end.

    Args:
        listener: of `bind`; it is closed at the end. None: a free port of 127.0.0.1.

    Raises:
        OSError: the socket cannot be listened at.
    """
    listener = listener or bind("127.0.0.1", 0, has_key=False)
    host, port = listener.getsockname()[:2]
    server = _Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_LINGER_S,
        )
    )
    serving = asyncio.create_task(server.serve([listener]), name="http-server")
    try:
        await server.ready.wait()
        if not server.started:
            await serving
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        try:
            await app.state.gate.drain(drain_s)
        finally:
            server.should_exit = True
            await asyncio.wait([serving])
            listener.close()
    serving.result()


class _Server(uvicorn.Server):
    """Leaves signals to whoever owns the event loop, and tells when it has started, or failed to."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        finally:
            self.ready.set()
