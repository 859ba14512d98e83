"""The studio as an application, put together from its route modules, and served on an address."""

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from mas.core.errors import MasError
from mas.endpoint.address import LOCAL
from mas.endpoint.limits import ConnectionGate
from mas.endpoint.server import running
from mas.studio import compare, downloads, league_pages, overview, player, teams
from mas.studio.runs import Runs
from mas.studio.site import FOLDER, Guard, Studio

_RUNNING = 32
_SHARED = (FOLDER.parent / "observe" / "palette.css", FOLDER.parent / "league" / "tournament.css")
"""Styles that other pages of mas have, too."""


def build_app(
    runs: Runs,
    *,
    hosts: frozenset[str] = LOCAL,
    key: str | None = None,
    served: str | None = None,
    plays: bool = False,
) -> Starlette:
    """The studio over some runs.

    Args:
        hosts: names that the server is known by, see `known_hosts`.
        key: the password that browsers must give; None: all processes on this machine may ask.
        served: address of a `mas serve` to chat with, as `served_address` gives it; None: there is no chat.
        plays: people may play games, which also `served` allows.

    Raises:
        ConfigError: `served` is no address of this machine.
    """
    studio = Studio(runs=runs, hosts=hosts, key=key)

    routes: list[BaseRoute] = [*overview.routes(studio), *compare.routes(studio), *downloads.routes(studio)]

    routes += player.routes(studio)
    routes += teams.routes(studio)
    routes += league_pages.routes(studio)

    if plays or served is not None:
        from mas.studio import play  # openskill and scipy take a second to import

        routes += play.routes(studio)

    if served is not None:
        from mas.studio import chat  # openai takes a second to import

        routes += chat.routes(studio, chat.served_address(served))

    routes += [
        *(Route(f"/static/{path.name}", _file(path), methods=["GET"]) for path in _SHARED),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]

    def http_error(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        title = "Not found" if error.status_code == 404 else "This does not work"
        return studio.page(request, "error.html", error.status_code, title=title, problem=error.detail, links=True)

    def mas_error(request: Request, error: Exception) -> Response:
        return studio.page(request, "error.html", 422, title="This cannot be shown", problem=str(error), links=True)

    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, studio=studio)],
        exception_handlers={HTTPException: http_error, MasError: mas_error, OSError: mas_error},
    )
    app.state.gate = ConnectionGate(running=_RUNNING, waiting=_RUNNING)
    return app


def _file(path: Path) -> Callable[[Request], Response]:
    return lambda request: FileResponse(path)


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
        places: of `Runs`; the others: of `build_app`.

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
