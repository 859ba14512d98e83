"""A web application on a free port of this machine, for as long as a block lasts."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp


@asynccontextmanager
async def served(app: ASGIApp, port: int = 0) -> AsyncIterator[str]:
    """The address of the application, such as `http://127.0.0.1:40000/v1`; `port` 0: a free one."""
    listener = socket.create_server(("127.0.0.1", port))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=1, lifespan="off"))
    task = asyncio.create_task(server.serve(sockets=[listener]), name="loopback")
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        await task
        listener.close()


@contextmanager
def in_thread(serving: Callable[[], AbstractAsyncContextManager[str]]) -> Iterator[str]:
    """The address of what `serving` serves in an event loop of another thread, for code that has a loop of its own."""
    address: Future[str] = Future()
    ended = Event()

    async def serve() -> None:
        async with serving() as found:
            address.set_result(found)
            await asyncio.to_thread(ended.wait)

    thread = Thread(target=asyncio.run, args=(serve(),), name="loopback")
    thread.start()
    try:
        yield address.result(60)
    finally:
        ended.set()
        thread.join()
