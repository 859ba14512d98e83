"""The command `mas cluster simulate`: what a recorded run would take with batches sampled ahead and more processes.

Nothing is started or measured, and all that is printed says so.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.config.stored_run import load_run_config
from mas.config.trust import check_links
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.printable import printable
from mas.observe.durations import clock_time
from mas.observe.files import check_json_file, write_json_file
from mas.observe.metrics import read_metrics
from mas.observe.trust_option import Trust
from mas.runs.overrides import JsonFile, RunDir
from mas.training.simulation import ClusterShape, Simulation, StepWork, sequential_s, simulate, split_step


def simulate_run(
    run_dir: RunDir,
    staleness: Annotated[str, typer.Option(metavar="K,...", help="updates that a batch may be behind")] = "0,1,2",
    workers: Annotated[str, typer.Option(metavar="N,...", help="rollout workers")] = "1,2,4,8",
    replicas: Annotated[str, typer.Option(metavar="E,...", help="engine replicas")] = "1",
    publish_s: Annotated[
        float | None, typer.Option(min=0, help="seconds that publishing takes; default: as recorded")
    ] = None,
    groups: Annotated[
        str, typer.Option(metavar="X,...", help="relative lengths of a batch's groups; default: all equal")
    ] = "",
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Simulate how long a recorded run would take with batches sampled ahead, workers and engine replicas."""
    shapes = [
        ClusterShape(staleness=k, workers=number, replicas=engines)
        for k, number, engines in product(
            _integers("--staleness", staleness, 0),
            _integers("--workers", workers, 1),
            _integers("--replicas", replicas, 1),
        )
    ]
    lengths = _lengths(groups)
    check_json_file(json)
    config = load_run_config(run_dir, uses=())
    check_links(run_dir)
    lines = read_metrics(run_dir / "metrics.jsonl")
    steps = recorded_steps(lines, lengths or [1.0] * config.train.tasks_per_step, publish_s, run_dir)
    found = [simulate(steps, shape) for shape in shapes]
    told = "as --groups says" if lengths else "assumed to be equally long, as they are not recorded one by one"
    console = Console()
    console.print(Text(printable(_recorded_text(run_dir, steps, told))), soft_wrap=True)
    console.print(_simulation_table(found))
    if json is not None:
        write_json_file(json, _simulation_record(run_dir, steps, told, found))


def recorded_steps(
    lines: Iterable[Mapping[str, Any]], shares: Sequence[float], publish_s: float | None, run: Path
) -> list[StepWork]:
    """The training steps of `metrics.jsonl`, without warm start, evaluations and what is between steps.

    Args:
        shares: relative lengths of the groups of every step.
        publish_s: seconds that publishing takes; None: as recorded.

    Raises:
        RunDirectoryError: there is no step, one whose seconds are missing, negative or no finite numbers, or all 0, or
            one that was sampled while the learner worked.
    """
    steps = []
    for line in lines:
        seconds = line.get("seconds", {})
        if line["step"] < 1 or "sample" not in seconds:
            continue
        if "in_flight" in line:
            raise RunDirectoryError(
                f"Step {line['step']} of {run / 'metrics.jsonl'} was sampled by workers or while the learner worked. "
                "Name a run with train.staleness=0 and cluster.workers=0"
            )
        try:
            found = {name: float(seconds[name]) for name in ("sample", "environment", "learn", "publish")}
            published_s = found["publish"] if publish_s is None else publish_s
            steps.append(
                split_step(
                    sample_s=found["sample"],
                    environment_s=found["environment"],
                    learn_s=found["learn"],
                    publish_s=published_s,
                    shares=shares,
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RunDirectoryError(
                f"Step {line['step']} of {run / 'metrics.jsonl'} has no seconds to simulate with: {error}. Name a run "
                "whose steps have seconds/sample, environment, learn and publish"
            ) from error
    if not steps or sequential_s(steps) <= 0:
        raise RunDirectoryError(f"Run directory {run} has no step to simulate with. Train on: mas train run_dir={run}")
    return steps


def _integers(option: str, text: str, least: int) -> list[int]:
    """Whole numbers that commas separate, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) >= least for word in words):
        raise ConfigError(f"{option} {text!r}: whole numbers from {least}, separated by commas, such as 1,2,4")
    return list(dict.fromkeys(map(int, words)))


def _lengths(text: str) -> list[float]:
    """Positive numbers that commas separate; none of an empty text."""
    try:
        lengths = [float(word) for word in text.split(",")] if text else []
    except ValueError:
        lengths = [0.0]
    if not all(0 < length < math.inf for length in lengths):
        raise ConfigError(f"--groups {text!r}: numbers above 0, separated by commas, one per group, such as 1,1,1,3")
    return lengths


def _recorded_text(run: Path, steps: Sequence[StepWork], groups: str) -> str:
    sampled, engine, learned, published = (
        sum(getattr(step, name) for step in steps) for name in ("sample_s", "engine_s", "learn_s", "publish_s")
    )
    environment = sampled - engine
    return (
        f"{run}: {len(steps)} recorded steps, {sequential_s(steps):.2f} s one after another: sampling {sampled:.2f} s "
        f"(environment {environment:.2f} s), learning {learned:.2f} s, publishing {published:.2f} s. "
        f"Groups: {len(steps[0].groups)} a step, {groups}."
    )


def _simulation_table(found: Sequence[Simulation]) -> Table:
    table = Table(title="Simulation: no row was measured (docs/planning.md)", padding=0)  # 80 columns wide at most
    names = ("stale-\nness", "workers", "replicas", "makespan", "steps/\nhour", "speed-\nup", "at\nmost")
    for column in (*names, "learner\nidle", "engine\nidle", "workers\nidle"):
        table.add_column(column, justify="right", overflow="fold")
    for one in found:
        shape = one.shape
        idle = (f"{100 * share:.0f} %" for share in (one.learner_idle, one.engine_idle, one.worker_idle))
        made = (
            (f"{one.makespan_s:.2f} s" if one.makespan_s < 60 else clock_time(one.makespan_s)),
            (f"{one.steps_per_hour:,.0f}" if one.steps_per_hour >= 10 else f"{one.steps_per_hour:.2g}"),
        )
        sizes = (str(size) for size in (shape.staleness, shape.workers, shape.replicas))
        table.add_row(*sizes, *made, f"{one.speed_up:.2f}x", f"{one.bound:.2f}x", *idle)
    return table


def _simulation_record(run: Path, steps: Sequence[StepWork], groups: str, found: Sequence[Simulation]) -> object:
    return {
        "is_simulation": True,
        "run_dir": str(run),
        "steps": len(steps),
        "sequential_s": sequential_s(steps),
        "groups": len(steps[0].groups),
        "groups_are": groups,
        "rows": [asdict(one) for one in found],
    }
