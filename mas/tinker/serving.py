"""The server of the Tinker API from a loaded base to the signal that ends it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mas.config.options import LearnerOptions
from mas.core.printable import printable
from mas.endpoint.client_keys import ANYBODY, Entrance
from mas.endpoint.server import on_signal, running
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.app import POLL_S, tinker_app
from mas.tinker.checkpoints import CheckpointFolder
from mas.tinker.service import TinkerLimits, TinkerService

_DRAIN_S = 1.0
"""How long requests may go on when the server ends: clients ask again for what they wait for."""


@asynccontextmanager
async def tinker_server(
    base: BaseModel,
    directory: Path,
    listener: socket.socket | None = None,
    *,
    options: LearnerOptions | None = None,
    entrance: Entrance = ANYBODY,
    limits: TinkerLimits | None = None,
    poll_s: float = POLL_S,
) -> AsyncIterator[tuple[str, TinkerService]]:
    """Serve while the block runs; gives the address and what it has.

    Args:
        directory: where saved weights are.
        listener: of `mas.endpoint.address.bind`; None: a free port of this machine.
        options: how much goes through the model at once.
        poll_s: how long an answer is waited for before the client is told to ask again.
    """
    engine = TransformersEngine(base)
    names = tuple(dict.fromkeys((base.name, base.options.path)))
    service = TinkerService(
        engine, options or LearnerOptions(), CheckpointFolder(directory, base), limits or TinkerLimits(), names
    )
    try:
        app = tinker_app(service, entrance, poll_s=poll_s)
        async with running(app, listener, drain_s=_DRAIN_S) as address:
            yield address, service
            await service.futures.close()  # who waits for an answer is told at once
    finally:
        await service.close()
        await engine.close()


def serve_tinker(
    base: BaseModel,
    directory: Path,
    listener: socket.socket,
    console: Console,
    *,
    options: LearnerOptions,
    entrance: Entrance,
    limits: TinkerLimits,
) -> None:
    """Serve until SIGINT or SIGTERM comes."""

    async def serve() -> None:
        stopped = on_signal()
        async with tinker_server(base, directory, listener, options=options, entrance=entrance, limits=limits) as (
            address,
            service,
        ):
            key = "the key in MAS_API_KEY" if entrance.has_key else "tml-any"
            lines = [
                f"The Tinker API at {address}, saved weights in {directory}. Base: {', '.join(service.base.names)}",
                f'  tinker.ServiceClient(base_url="{address}", api_key="{key}")',
                "Ctrl-C ends it.",
            ]
            console.print(Text(printable("\n".join(lines))), soft_wrap=True)
            await stopped.wait()
            console.print("closing: saved weights stay", style="dim")

    asyncio.run(serve())
