"""A web application on a free port of this machine, for as long as a block lasts."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    """The address of the application, such as `http://127.0.0.1:40000/v1`."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]), name="loopback")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await task
        listener.close()
