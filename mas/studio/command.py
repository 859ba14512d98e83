"""`mas studio`: a page over run directories, until Ctrl-C."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mas.core.errors import RunDirectoryError
from mas.observe.listener_options import AllowHost, Host, Port
from mas.observe.trust_option import Trust

_USUAL = (Path("runs"), Path("league.db"))


def studio(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN",
            help="run directories, folders with some below them, leagues; default: runs, league.db",
        ),
    ] = None,
    host: Host = "127.0.0.1",
    port: Port = 8300,
    allow_host: AllowHost = None,
    trust: Trust = False,
    play: Annotated[
        bool, typer.Option("--play", help="people may play against players of leagues, which --serve allows, too")
    ] = False,
    served: Annotated[
        str | None, typer.Option("--serve", help="a mas serve of this machine to chat with: http://127.0.0.1:8000")
    ] = None,
) -> None:
    """Show runs and leagues in a browser, while they train and afterwards: curves, comparisons, ladders, games.

    Nothing is written into a run. With MAS_API_KEY in the environment, browsers ask for it as a password.
    """
    for place in places or []:
        if not place.is_dir() and not (place.is_file() and place.suffix == ".db"):
            raise RunDirectoryError(
                f"{place} is no directory: name a run, a folder with runs below it, or the file of a league (.db)"
            )
    from mas.endpoint.address import bind, known_hosts

    key = os.environ.get("MAS_API_KEY") or None
    with bind(host, port, has_key=key is not None) as listener:
        from mas.studio.app import serve

        serve(places or _USUAL, listener, known_hosts(host, allow_host or []), key, served, plays=play)
