"""`mas studio`: a page over run directories, until Ctrl-C."""

from pathlib import Path
from typing import Annotated

import typer

from mas.observe.trust_option import Trust

_RUNS = Path("runs")


def studio(
    places: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN]...", help="run directories, or folders with some below them; default: runs"),
    ] = None,
    host: Annotated[str, typer.Option(help="address to listen at; only this machine's own, such as ::1")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one")] = 8300,
    trust: Trust = False,
    served: Annotated[
        str | None, typer.Option("--serve", help="a mas serve of this machine to chat with: http://127.0.0.1:8000")
    ] = None,
) -> None:
    """Show runs in a browser while they train and afterwards: curves, comparisons and what each number means.

    Nothing is written into a run. Everybody on this machine may ask.
    """
    from mas.endpoint.address import bind

    with bind(host, port, has_key=False) as listener:
        from mas.studio.serving import serve

        serve(places or [_RUNS], listener, host, served)
