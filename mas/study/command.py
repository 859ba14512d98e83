"""The commands `mas demo` and `mas study`, and `mas curves`: learning curves of several runs as one drawing."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas.core.errors import ConfigError, RunDirectoryError
from mas.observe.atomic import write_text_atomic
from mas.observe.trust_option import Trust
from mas.study.ablation import ABLATION, ablation
from mas.study.options import StudyOptions, load_study

_COLUMNS = 3

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="[OVERRIDES]...", help="of an ablation: scenario=NAME, and what else every arm has"),
]
StudyName = Annotated[str, typer.Argument(metavar="STUDY", help="a preset: demo, full or algorithms; or ablation")]
StudyDir = Annotated[Path, typer.Option("--out", help="directory of the study")]


def curves(
    places: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="run directories, seeds of one training too")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="the SVG file that is written")],
    x: Annotated[
        str, typer.Option(help="what the x axis counts: step, tokens, completion_tokens, calls or optimiser_steps")
    ] = "step",
    metric: Annotated[
        str, typer.Option(help="what is drawn: a name of metrics.jsonl with / between its parts")
    ] = "eval/greedy/success",
    columns: Annotated[int, typer.Option(min=1, help="panels side by side at most")] = _COLUMNS,
    trust: Trust = False,
) -> None:
    """Draw what runs learned: a panel per scenario, a line per team, with its seeds."""
    from mas.observe.curves_svg import curves_svg
    from mas.study.curves import learning_curves, read_run

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


def demo(out: StudyDir = Path("runs/demo")) -> None:
    """Train the four-role team on plan_path, with a small study beside it: minutes on two cores, no network."""
    _study(load_study("demo"), out, ["mas", "demo"])


def study(
    name: StudyName = "full",
    overrides: Overrides = None,
    out: StudyDir = Path("runs/study"),
    seeds: Annotated[int | None, typer.Option(min=1, help="of an ablation; default: 3")] = None,
) -> None:
    """Compare arms over scenarios and seeds at equal token budgets. The same command again does what is missing."""
    if name != ABLATION and (overrides or seeds is not None):
        raise ConfigError(f"study {name!r} is a preset: only `mas study {ABLATION}` takes overrides and --seeds")
    options = ablation(overrides or [], seeds or 3) if name == ABLATION else load_study(name)
    given = [*(overrides or []), *([] if seeds is None else ["--seeds", str(seeds)])]
    _study(options, out, ["mas", "study", name, *given])


def _study(options: StudyOptions, out: Path, words: list[str]) -> None:
    """Run a study; its page says how to do it again in a new directory: in this one it has been done."""
    from mas.study.run import run_study

    command, again = (shlex.join([*words, "--out", path]) for path in (str(out), f"{out}-again"))
    run_study(out, options, command=command, console=Console(), again=again)
