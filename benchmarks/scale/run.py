"""Running `mas bench scale`: each kind of cluster in turn; what is compared in it takes turns."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from benchmarks.machine import describe, load
from benchmarks.result import Result, Row, Target
from benchmarks.rounds import Timing, ratio, take_turns
from benchmarks.scale.options import ScaleBench
from benchmarks.scale.processes import Started, cluster_options, found_by_workers, start
from benchmarks.scale.rollouts import (
    ONE_PROCESS,
    ONE_WORKER,
    ORDERS,
    PROCESSES,
    STEPS,
    Orders,
    Steps,
    WorkerCpu,
    workers_of,
)
from benchmarks.scale.worker import FACTORY, ScriptedSetup, open_player
from mas.cluster.contract import Cluster, open_cluster
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import MissingPackage
from mas.runs.resolve import resolve
from mas.runs.rollout_worker import FACTORY as BASE_FACTORY
from mas.runs.worker_setup import setup_of
from mas.runtime.team import TeamRuntime
from mas.training.base import base_path
from mas.training.rollout import Rollout

Tell = Callable[[str], None]
OVERHEAD_GOAL = 0.1
SCALING_GOAL = 0.9
LINEAR = "of_linear"
"""Measure: orders per second / (workers · orders per second of one worker), median over rounds."""
CPU = "driver_cpu_ms"
"""Measure: CPU milliseconds of the process that trains per task or order, median over rounds."""
WORKER_CPU = "worker_cpu_ms"
"""Measure: CPU milliseconds of the worker's process per task, median over rounds; 0 where /proc does not tell."""
_AT_START = "started once"
"""Note of rows that have no rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What is played: by this process, and what workers are made of."""

    options: ScaleBench
    config: Config
    scripted: ScriptedSetup
    rollout: Rollout
    runtime: TeamRuntime
    logs: Path


async def bench_scale(options: ScaleBench, tell: Tell) -> Result:
    """Measure every kind of cluster that is installed.

    Raises:
        ClusterError: a worker cannot be started. RunError: a task could not be played, so that its time means nothing.
    """
    load_before = load()
    config = load_config(("scenario=relay", f"train.tasks_per_step={options.amounts.tasks}"))
    scripted = ScriptedSetup(config=config.model_dump_json(), call_s=options.latency_ms / 1e3)
    if options.amounts.bases:
        base_path(resolve(config), tell)  # made here if it is not in the cache, and not by all workers at once
    rows: list[Row] = []
    targets: list[Target] = []
    with TemporaryDirectory(prefix="mas-bench-") as logs, found_by_workers():
        async with open_player(scripted) as (rollout, runtime):
            played = Played(
                options=options, config=config, scripted=scripted, rollout=rollout, runtime=runtime, logs=Path(logs)
            )
            for kind in options.kinds:
                found, goals = await bench_kind(kind, played, tell)
                rows += found
                targets += goals
    return Result(
        bench="scale",
        machine=describe(load_before=load_before, threads=0, device="cpu", packages=("msgspec", "ray", "torch")),
        workload=asdict(options),
        rows=tuple(rows),
        targets=tuple(targets),
    )


async def bench_kind(kind: str, played: Played, tell: Tell) -> tuple[list[Row], list[Target]]:
    """The rows and targets of one kind of cluster."""
    options, amounts = played.options, played.options.amounts
    tell(f"{kind}:")
    try:
        cluster = open_cluster(cluster_options(kind, options.most + amounts.bases), played.logs / kind)
    except MissingPackage as error:
        return _absent(kind, options, str(error))
    began = time.perf_counter()
    async with cluster:
        open_s = time.perf_counter() - began
        tell(f"opened: {open_s:.1f} s")
        scripted = await start(cluster, "scripted", FACTORY, msgspec.json.encode(played.scripted), options.most)
        tell(f"{options.most} workers: {scripted.first_s + scripted.rest_s:.1f} s")
        steps = _steps(played, cluster, scripted)
        timings = await take_turns(steps, options.repeats * amounts.turns, lambda text: None)
        timings = {**timings, **await take_turns(_orders(played, cluster, scripted), options.repeats, tell)}
        rows = _rows(kind, options.workers, timings, median(steps[1].cpu_ms[1:]))
        rows.append(_process_row(kind, "scripted engine", {"open_s": open_s} | scripted.measures(cluster)))
        if amounts.bases:
            bases = await start(cluster, "base", BASE_FACTORY, setup_of(played.config), amounts.bases)
            tell(f"{amounts.bases} workers with the tiny base: {bases.first_s + bases.rest_s:.1f} s")
            rows.append(_process_row(kind, "tiny base", bases.measures(cluster)))
    return rows, _targets(kind, options, timings)


def _steps(played: Played, cluster: Cluster, scripted: Started) -> tuple[Steps, Steps]:
    """One process, and one worker."""
    count, handles = played.options.amounts.steps, scripted.handles[:1]
    workers = workers_of(cluster, handles, 1)
    return (
        Steps(ONE_PROCESS, played.rollout, played.runtime, count),
        Steps(ONE_WORKER, played.rollout, played.runtime, count, workers, WorkerCpu(handles)),
    )


def _orders(played: Played, cluster: Cluster, scripted: Started) -> list[Orders]:
    return [
        Orders(name_of(n), played.rollout, workers_of(cluster, scripted.handles, n), played.options.amounts.orders)
        for n in played.options.workers
    ]


def name_of(count: int) -> str:
    """The row of so many workers that play orders."""
    return f"workers: {count}"


def of_linear(timings: Mapping[str, Timing], count: int) -> float:
    """See `LINEAR`."""
    return ratio(timings[name_of(count)], timings[name_of(1)]) / count


def _rows(kind: str, counts: Sequence[int], timings: Mapping[str, Timing], worker_ms: float) -> list[Row]:
    """`worker_ms`: see `WORKER_CPU`."""

    def row(name: str, reference: str, unit: str, measures: dict[str, float]) -> Row:
        timing = timings[name]
        found = {CPU: timing.cpu_us / 1e3} | measures
        return Row.measured(name, f"{kind}, {unit}", 0, timing, timings[reference], found, unit)

    return [
        row(ONE_PROCESS, ONE_PROCESS, STEPS, {}),
        row(ONE_WORKER, ONE_PROCESS, STEPS, {WORKER_CPU: worker_ms}),
        *(row(name_of(count), name_of(1), ORDERS, {LINEAR: of_linear(timings, count)}) for count in counts),
    ]


def _process_row(kind: str, name: str, measures: dict[str, float]) -> Row:
    return Row(name=name, size=f"{kind}, {PROCESSES}", parameters=0, measures=measures, note=_AT_START, unit=PROCESSES)


def _absent(kind: str, options: ScaleBench, why: str) -> tuple[list[Row], list[Target]]:
    note = f"not installed: {why}"
    names = {STEPS: [ONE_WORKER], ORDERS: [name_of(count) for count in options.workers], PROCESSES: ["scripted engine"]}
    rows = [
        Row(name=name, size=f"{kind}, {unit}", parameters=0, note=note, unit=unit)
        for unit, found in names.items()
        for name in found
    ]
    return rows, _goals(kind, options, None, None, "not installed")


def _targets(kind: str, options: ScaleBench, timings: Mapping[str, Timing]) -> list[Target]:
    overhead = ratio(timings[ONE_PROCESS], timings[ONE_WORKER]) - 1
    return _goals(kind, options, overhead, of_linear(timings, options.most))


def _goals(
    kind: str, options: ScaleBench, overhead: float | None, scaling: float | None, note: str = ""
) -> list[Target]:
    """The goals of one kind of cluster. `scaling`: with the most workers; left out if the most is one."""
    goals = [Target.at_most(f"{kind}: overhead of one worker beside one process", overhead, OVERHEAD_GOAL, note)]
    if options.most > 1:
        name = f"{kind}: {options.most} workers, orders per second / linear"
        goals.append(Target.at_least(name, scaling, SCALING_GOAL, note))
    return goals
