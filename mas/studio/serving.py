"""The studio on an address, until a signal ends it."""

import asyncio
import signal
import socket
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from mas.core.errors import RunDirectoryError
from mas.core.printable import printable
from mas.endpoint.address import known_hosts
from mas.endpoint.server import running
from mas.studio.app import build_app
from mas.studio.runs import Runs


def serve(places: Sequence[Path], listener: socket.socket, host: str, served: str | None = None) -> None:
    """Serve until SIGINT or SIGTERM comes.

    Args:
        places: of `Runs`. host: what it was told to listen at. served: of `build_app`.

    Raises:
        RunDirectoryError: a place is no directory.
    """
    for place in places:
        if not place.is_dir():
            raise RunDirectoryError(
                f"{place} is no directory. Name a run, or a folder with runs; mas train run_dir={place}/NAME makes one"
            )
    runs, console = Runs(places), Console()

    async def serving() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
        async with running(build_app(runs, hosts=known_hosts(host), served=served), listener, drain_s=1.0) as address:
            count = len(runs.all())
            said = f"studio at {address} with {count} {'run' if count == 1 else 'runs'}; Ctrl-C ends it"
            console.print(Text(printable(said)), soft_wrap=True)
            await stopped.wait()

    asyncio.run(serving())
