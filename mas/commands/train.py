"""The commands `mas train`, `mas report` and `mas config`."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.text import Text

from mas.api.train import train_setup
from mas.commands.algorithms import ASKED, algorithms
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError
from mas.observe.files import STANDARD_OUTPUT, check_json_file, write_json_file
from mas.observe.metrics import read_metrics
from mas.observe.trust_option import Trust
from mas.runs.overrides import FromStep, JsonFile, Overrides, Quiet, RunDir, configured, tell_stopped
from mas.runs.play import BUS_HELP, BusCa, BusStore, on_bus
from mas.runs.resolve import resolve, with_tasks
from mas.scenarios import SCENARIOS


def train(
    overrides: Overrides = None,
    bus: Annotated[str, typer.Option(help=f"{BUS_HELP}: the agents are processes of `mas agent` on it")] = "",
    ca: BusCa = None,
    store: BusStore = "",
    wait: Annotated[
        float | None, typer.Option(min=0, help="seconds that an agent's process may be gone, with --bus; default: 300")
    ] = None,
    from_step: FromStep = None,
    quiet: Quiet = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Train a team. The same command again resumes a run that was stopped or killed."""
    if ASKED in (overrides or []):
        algorithms("")
        return
    config, setup = configured(overrides or [])
    keys = {override.lstrip("+").partition("=")[0] for override in overrides or []}
    if not keys & {"scenario", "scenario.name"}:
        raise ConfigError(f"say what is trained: mas train scenario=NAME, where NAME is one of {', '.join(SCENARIOS)}")
    check_json_file(json)
    console = Console(quiet=quiet or json == STANDARD_OUTPUT)
    try:
        outcome = train_setup(
            config,
            setup,
            console,
            from_step=from_step,
            open_bus=partial(on_bus, setup, bus, ca, store, wait, console),
        )
    except KeyboardInterrupt:
        options = {"--bus": bus or None, "--ca": ca, "--store": store or None, "--wait": wait}
        given = [word for name, value in options.items() if value is not None for word in (name, str(value))]
        tell_stopped(config.run_dir, ["mas", "train", *(overrides or []), *given])
        raise typer.Exit(130) from None
    if json is not None:
        write_json_file(json, _result(config.run_dir, outcome.reason, outcome.progress.step))
    console.print(Text(f"next: mas eval {config.run_dir}   mas report {config.run_dir}", style="dim"), soft_wrap=True)


def _result(run_dir: str, reason: str, step: int) -> dict[str, object]:
    """How a training ended, for programs: with each evaluation's success, by step and kind."""
    lines = [line for line in read_metrics(Path(run_dir) / "metrics.jsonl") if "eval" in line]
    evaluations = [
        {"step": line["step"], "kind": kind, "success": found["success"]}
        for line in lines
        for kind, found in line["eval"].items()
    ]
    return {"run_dir": run_dir, "steps": step, "ended": reason, "evaluations": evaluations}


def report(
    run_dir: RunDir,
    figures: Annotated[
        bool,
        typer.Option("--figures", help="also write RUN_DIR/figures/: charts as SVG and PNG, points as CSV, Parquet"),
    ] = False,
    quiet: Quiet = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Write RUN_DIR/report.html: curves, conversations before and after, the team, and how to do it again."""
    config = load_run_config(run_dir, uses=["code", "file"])
    from mas.observe.report import write_report
    from mas.runs.report import build_report

    check_json_file(json)
    path, built = run_dir / "report.html", build_report(run_dir, config, resolve(config).plan)
    if figures:
        from mas.observe.figures import has_parquet, write_figures

        built = write_figures(run_dir, built)
        if not has_parquet():
            typer.echo("no curves.parquet: pyarrow is not installed: pip install 'mas[data]'", err=True)
    write_report(path, built)
    if json is not None:
        write_json_file(json, {"report": str(path), "headline": built.headline})
    if not quiet and json != STANDARD_OUTPUT:
        typer.echo(str(path))


def show_config(overrides: Overrides = None) -> None:
    """Print the whole configuration that the overrides make, and check it."""
    config, setup = configured(overrides or [])
    with_tasks(config, setup)
    typer.echo(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True), nl=False)
