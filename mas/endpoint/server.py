"""An application on an address: a server inside the running event loop, that ends when the block does; and the signal
that ends it."""

import asyncio
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.applications import Starlette

from mas.endpoint.address import bind
from mas.endpoint.connections import Bounds, Connections, bounded

DRAIN_S = 30.0
"""How long a closing server lets requests in flight go on."""
_LINGER_S = 2
"""How long connections may take to close after that."""
_IDLE_S = 75
"""How long a connection may be idle: longer than clients keep one (5 s in httpx and openai), or they would send on a
connection that is just being closed."""
_MORE_CONNECTIONS = 512
"""Connections beside those of all requests that run and wait: for pages, for clients that pause, and for new ones."""
_ACCEPTED = 32
"""New connections that are taken before those that are there have their turn."""
_QUEUED = 2048
"""New connections that the system holds until then."""
_OTHER_FILES = 128
"""Files that are open beside the connections."""


@asynccontextmanager
async def running(
    app: Starlette, listener: socket.socket | None = None, *, drain_s: float = DRAIN_S, bounds: Bounds | None = None
) -> AsyncIterator[str]:
    """Serve an application of `build_app` while the block runs; gives its address, such as `http://127.0.0.1:8000`.

    When the block ends nobody is let in any more, and requests in flight have `drain_s` seconds to end.

    Args:
        listener: of `bind`; it is closed at the end. None: a free port of 127.0.0.1.
        bounds: of connections; None: the usual times, and places for all requests that run and wait and 512 more, half
            of them for one address. The limit of open files is raised for them where it may be.

    Raises:
        OSError: the socket cannot be listened at.
    """
    listener = listener or bind("127.0.0.1", 0, has_key=False)
    host, port = listener.getsockname()[:2]
    table = Connections(bounds or _usual_bounds(app.state.gate.limit))
    server = _EndpointServer(
        uvicorn.Config(
            app,
            http=bounded(table),
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_IDLE_S,
            backlog=_ACCEPTED,
            timeout_graceful_shutdown=_LINGER_S,
        )
    )
    serving = asyncio.create_task(server.serve([listener]), name="http-server")
    try:
        await server.ready.wait()
        if not server.started:
            await serving
        listener.listen(_QUEUED)  # asyncio takes as many at once as it lets the system hold
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        try:
            await app.state.gate.drain(drain_s)
        finally:
            server.should_exit = True
            await asyncio.wait([serving])
            listener.close()
    serving.result()


def on_signal() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM. The next one has its default effect."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        stopped.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stop)
    return stopped


def _usual_bounds(requests: int) -> Bounds:
    """Places for so many requests and more, as far as this process may open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = requests + _MORE_CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    files = wanted if soft == resource.RLIM_INFINITY else min(wanted, soft)
    connections = max(files - _OTHER_FILES, 16)
    return Bounds(connections=connections, per_address=max(connections // 2, 8))


class _EndpointServer(uvicorn.Server):
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
