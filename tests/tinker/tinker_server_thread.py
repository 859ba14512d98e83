"""The server of `mas tinker` in a thread of this process, and clients of the real SDK for it."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tinker
from tinker.lib.internal_client_holder import ClientConnectionPool, InternalClientHolder

from mas.endpoint.client_keys import Entrance
from mas.serving.model import BaseModel
from mas.tinker.service import TinkerLimits, TinkerService
from mas.tinker.serving import tinker_server

KEY = "tml-test"
logging.getLogger("tinker").setLevel(logging.ERROR)


@contextmanager
def closing_pools() -> Iterator[None]:
    """At the end of the block, close what the SDK asked servers for their configuration with, and never closes."""
    made: list[tuple[InternalClientHolder, ClientConnectionPool]] = []
    create = InternalClientHolder._create_client_connection_pool

    def noted(holder: InternalClientHolder, **more: Any) -> ClientConnectionPool:
        pool = create(holder, **more)
        if more["max_requests_per_client"] == 1 and "client_config" in more and more["client_config"] is not None:
            made.append((holder, pool))
        return pool

    InternalClientHolder._create_client_connection_pool = noted  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        InternalClientHolder._create_client_connection_pool = create  # type: ignore[method-assign]
        for holder, pool in made:
            asyncio.run_coroutine_threadsafe(pool.close(), holder.get_loop()).result(timeout=30)


@dataclass
class RunningTinker:
    """A server that runs. `base`: its name there."""

    address: str
    service: TinkerService
    base: str

    @contextmanager
    def client(self, key: str = KEY) -> Iterator[tinker.ServiceClient]:
        """A client of its own session, which ends with the block."""
        client = tinker.ServiceClient(base_url=self.address, api_key=key)
        try:
            yield client
        finally:
            client.close("success").result(timeout=30)


@contextmanager
def running_tinker(base: BaseModel, directory: Path, key: str | None = None, **more: Any) -> Iterator[RunningTinker]:
    """Serve while the block runs. `more`: of `tinker_server`, or limits."""
    ready, found = threading.Event(), dict[str, Any]()

    async def serve() -> None:
        stop = found["stop"] = asyncio.Event()
        found["loop"] = asyncio.get_running_loop()
        limits = TinkerLimits(**{name: more.pop(name) for name in ("models", "samplers", "idle_s") if name in more})
        async with tinker_server(base, directory, entrance=Entrance(key=key), limits=limits, **more) as (
            where,
            service,
        ):
            found["running"] = RunningTinker(where, service, base.name)
            ready.set()
            await stop.wait()

    def work() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            found["error"] = error
            raise
        finally:
            ready.set()

    thread = threading.Thread(target=work, name="tinker-server")
    thread.start()
    try:
        assert ready.wait(60)
        assert "error" not in found, found["error"]
        yield found["running"]
    finally:
        if "running" in found and thread.is_alive():
            found["loop"].call_soon_threadsafe(found["stop"].set)
        thread.join(60)
        assert not thread.is_alive()
