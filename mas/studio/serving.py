"""The studio on an address, until a signal ends it."""

import asyncio
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mas.endpoint.server import running
from mas.studio.app import build_app
from mas.studio.runs import Runs


def serve(
    places: Sequence[Path],
    listener: socket.socket,
    hosts: frozenset[str],
    key: str | None,
    served: str | None = None,
    *,
    plays: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Args:
        places: of `Runs`. hosts, key, served, plays: of `build_app`.

    Raises:
        ConfigError: `served` is no address of this machine.
    """
    runs, console = Runs(places), Console()

    async def serving() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        app = build_app(runs, hosts=hosts, key=key, served=served, plays=plays)
        async with running(app, listener, drain_s=1.0) as address:
            count = len(runs.all())
            said = f"studio of {count} {'run' if count == 1 else 'runs'}: {address}\nCtrl-C ends it"
            console.print(Text(said), soft_wrap=True)
            await stopped.wait()

    asyncio.run(serving())
