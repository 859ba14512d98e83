"""The command `mas curves`: learning curves of several runs as one drawing."""

from pathlib import Path
from typing import Annotated

import typer

from mas.core.errors import ConfigError, RunDirectoryError
from mas.observe.atomic import write_text_atomic

_COLUMNS = 3


def curves(
    places: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="run directories, seeds of one training too")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the SVG file that is written")],
    x: Annotated[str, typer.Option(help="what the x axis counts: step or tokens")] = "step",
    metric: Annotated[
        str, typer.Option(help="what is drawn: a name of metrics.jsonl with / between its parts")
    ] = "eval/greedy/success",
    columns: Annotated[int, typer.Option(min=1, help="panels side by side at most")] = _COLUMNS,
) -> None:
    """Draw what runs learned: a panel per scenario, a line per team, with its seeds."""
    from mas.study.curves import learning_curves, read_run
    from mas.study.plot import curves_svg

    if out.suffix != ".svg":
        raise ConfigError(f"--out {out}: the drawing is an SVG file; give a name that ends in .svg")
    runs = [read_run(place) for place in places]
    charts = learning_curves(runs, metric=metric, x=x)
    names = tuple(dict.fromkeys(run.team for run in runs))
    try:
        write_text_atomic(out, curves_svg(charts, names=names, columns=min(columns, len(charts))))
    except OSError as error:
        raise RunDirectoryError(f"{out} cannot be written: {error.strerror}. Choose another --out.") from error
    for run in runs:
        if not run.is_over:
            typer.echo(f"{run.path} has not ended: step {run.lines[-1]['step']}; its series is drawn so far", err=True)
    typer.echo(str(out))
