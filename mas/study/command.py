"""The commands `mas study` and `mas curves` (learning curves of several runs as one drawing), and `mas demo --tiny`."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from mas.core.errors import ConfigError
from mas.observe.files import write_text_atomic, writing
from mas.observe.trust_option import Trust
from mas.study.options import ABLATION, StudyOptions, ablation, load_study
from mas.study.protocol import ProtocolOptions, find_protocol

_COLUMNS = 3

Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="OVERRIDES", help="of an ablation: scenario=NAME, and what else every arm has"),
]
StudyName = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help="demo, full, algorithms, ablation, a fair one (fair, fair_grid, fair_llm, fair_presets), or a YAML file",
    ),
]
StudyDir = Annotated[Path, typer.Option("--out", help="directory of the study")]


def curves(
    places: Annotated[list[Path], typer.Argument(metavar="RUN_DIR", help="run directories, seeds of one training too")],
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
    from mas.observe.charts import curves_svg
    from mas.study.curves import learning_curves, read_run

    if out.suffix != ".svg":
        raise ConfigError(f"--out {out}: the drawing is an SVG file; give a name that ends in .svg")
    runs = [read_run(place) for place in places]
    charts = learning_curves(runs, metric=metric, x=x)
    names = tuple(dict.fromkeys(run.team for run in runs))
    with writing(out, ". Choose another --out."):
        write_text_atomic(out, curves_svg(charts, names=names, columns=min(columns, len(charts))))
    for run in runs:
        if not run.is_over:
            typer.echo(f"{run.path} has not ended: step {run.lines[-1]['step']}; its series is drawn so far", err=True)
    typer.echo(str(out))


def tiny_demo(out: Path) -> None:
    """Train the four-role team on plan_path, with a small study beside it."""
    typer.echo(
        "The tiny base has 80 thousand weights and reads characters. It was made with part of each role's skill and\n"
        "with bad habits, so that training has something to repair: a test of the machinery, not of language models."
    )
    _study(load_study("demo"), out, ["mas", "demo", "--tiny"])


def study(
    name: StudyName = "full",
    overrides: Overrides = None,
    out: StudyDir = Path("runs/study"),
    seeds: Annotated[int | None, typer.Option(min=1, help="of an ablation; default: 3")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="of a fair study: print runs, tokens and hours, run nothing")
    ] = False,
    workers: Annotated[int | None, typer.Option(min=1, help="of a fair study: runs at a time; default: cores")] = None,
) -> None:
    """Compare arms over scenarios and seeds at equal token budgets. The same command again does what is missing."""
    if name != ABLATION and (overrides or seeds is not None):
        raise ConfigError(f"only `mas study {ABLATION}` takes overrides and --seeds, not the study {name!r}")
    if (protocol := find_protocol(name)) is not None:
        _protocol(name, protocol, out, is_plan=plan, workers=workers)
        return
    if plan or workers is not None:
        raise ConfigError(
            "--plan and --workers belong to the studies fair, fair_grid, fair_llm and fair_presets and to files, and "
            f"{name!r} is none of them"
        )
    options = ablation(overrides or [], seeds or 3) if name == ABLATION else load_study(name)
    given = [*(overrides or []), *([] if seeds is None else ["--seeds", str(seeds)])]
    _study(options, out, ["mas", "study", name, *given])


def _protocol(name: str, options: ProtocolOptions, out: Path, *, is_plan: bool, workers: int | None) -> None:
    """Run a protocol, or print its plan."""
    from mas.study.protocol_run import printed_plan, run_protocol

    lanes = workers or os.cpu_count() or 1
    if is_plan:
        typer.echo(printed_plan(out, options, lanes), nl=False)
        return
    command = shlex.join(["mas", "study", name, "--out", str(out)])
    run_protocol(out, options, command=command, console=Console(), workers=lanes if lanes > 1 else 0)


def _study(options: StudyOptions, out: Path, words: list[str]) -> None:
    """Run a study; its page says how to do it again in a new directory: in this one it has been done."""
    from mas.study.run import run_study

    command, again = (shlex.join([*words, "--out", path]) for path in (str(out), f"{out}-again"))
    run_study(out, options, command=command, console=Console(), again=again)
