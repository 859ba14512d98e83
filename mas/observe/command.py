"""The command `mas timeline`: what traced processes did, when, and inside what."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas.config.trust import check_links
from mas.core.errors import RunDirectoryError
from mas.observe.span_records import SPANS_NAME, read_spans
from mas.observe.trust_option import Trust

_ROWS, _PAGE_ROWS = 200, 5_000


def timeline(
    places: Annotated[
        list[Path],
        typer.Argument(metavar="RUN_DIR", help=f"directories with a {SPANS_NAME}, or such files: one per process"),
    ],
    trace: Annotated[str, typer.Option(metavar="ID", help="the trace that begins so; default: the last one")] = "",
    rows: Annotated[
        int | None, typer.Option(min=0, help=f"spans shown, 0: all; default {_ROWS}, on a page {_PAGE_ROWS}")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="write a page with all traces instead")] = None,
    trust: Trust = False,
) -> None:
    """Show what a traced run did as a waterfall; files of several processes come together by their trace."""
    from mas.observe.timeline import print_list, print_waterfall, traces_of, write_page

    for place in places:
        if place.is_dir():
            check_links(place)
    log = read_spans(places)
    traces = traces_of(log.spans)
    chosen = [one for one in traces if one.id.startswith(trace)]
    if not chosen:
        latest = ", ".join(repr(one.id[:12]) for one in traces[-10:])
        problem = f"no trace {trace!r} there; the latest are {latest}" if traces else "no span there"
        raise RunDirectoryError(f"{', '.join(str(place) for place in places)}: {problem}")
    if html is not None:
        write_page(html, chosen if trace else traces, dropped=log.dropped, most=_PAGE_ROWS if rows is None else rows)
        typer.echo(str(html))
        return
    console = Console()
    if len(traces) > 1:
        print_list(console, traces)
    print_waterfall(console, chosen[-1], _ROWS if rows is None else rows)
    if log.dropped:
        console.print(f"{log.dropped} spans found no room in the files", style="yellow")
