"""Running `mas bench learner`: every workload in turn, its competitors or the points of its sweep side by side."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch

from benchmarks.learner.check import check_gaps, forget_gradients, gaps
from benchmarks.learner.competitors import LearnerCompetitor
from benchmarks.learner.field import make_adapters, open_field, our_learner, weights_of
from benchmarks.learner.found import PEAK, Found
from benchmarks.learner.memory import peak_mib, why_unmeasured
from benchmarks.learner.models import make_base, why_absent
from benchmarks.learner.names import PADDED, REFERENCE, ROWS
from benchmarks.learner.options import LearnerBench
from benchmarks.learner.rows import make_rows, useful_tokens
from benchmarks.learner.work import StepWork, peak_tflops
from benchmarks.learner.workload import WorkloadOptions
from benchmarks.machine import describe, load
from benchmarks.models import device_name, parameters, torch_threads
from benchmarks.result import Result
from benchmarks.rounds import Timing, take_turns
from mas.core.errors import ConfigError

Tell = Callable[[str], None]
Measures = dict[str, dict[str, float]]


async def bench_learner(options: LearnerBench, tell: Tell) -> Result:
    """Measure every workload.

    Raises:
        ConfigError: a workload is for a CUDA device, and there is none.
        TrainingError: somebody computed another loss or another gradient, so that its speed means nothing.
    """
    for workload in options.workloads:
        _check_device(workload)
    load_before = load()
    found = []
    with torch_threads(options.threads):
        for workload in options.workloads:
            with TemporaryDirectory(prefix="mas-bench-") as folder:
                if reason := why_absent(workload):
                    tell(f"{workload.name}: {reason}")
                    found.append(_nobody(workload, options, reason))
                    continue
                measured = _everybody if workload.sweep is None else _sweep
                found.append(await measured(workload, options, Path(folder), tell))
    devices = ", ".join(dict.fromkeys(one.device for one in found if one.device))
    return Result(
        bench="learner",
        machine=describe(load_before=load_before, threads=options.threads, device=devices),
        workload={"seed": options.seed} | {one.workload.name: one.workload.model_dump(mode="json") for one in found},
        rows=tuple(row for one in found for row in one.rows()),
        targets=tuple(target for one in found for target in one.targets()),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )


def _check_device(workload: WorkloadOptions) -> None:
    if workload.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"workload {workload.name!r} is for a CUDA device, and torch sees none here; leave it out")


def _nobody(workload: WorkloadOptions, options: LearnerBench, reason: str) -> Found:
    """A workload whose model is not there."""
    names = {name: ROWS[name] for name in options.rows}
    points = {value: f"mas, {workload.point_title(value)}" for value in workload.points}
    titles = names if workload.sweep is None else points
    return Found(
        workload=workload,
        parameters=0,
        device="",
        titles=titles,
        reference=REFERENCE,
        timings={},
        measures={},
        absent=dict.fromkeys(titles, f"not measured: {reason}"),
        notes=(),
    )


async def _everybody(workload: WorkloadOptions, options: LearnerBench, folder: Path, tell: Tell) -> Found:
    """All competitors: one step that is checked, one whose memory is measured, then the rounds."""
    field = open_field(workload, options, folder)
    tell(f"{workload.name}: {len(field.rows)} rows, {useful_tokens(field.rows)} tokens a step")
    measures = await _equal_steps(field.competitors, workload.max_gap, tell)
    notes = await _add_peaks(field.competitors, measures, field.base.bank.device)
    timings = await take_turns(field.competitors, options.repeats, tell)
    work, device = StepWork.of(workload, field.rows, field.adapter_weights), device_name(field.base)
    _add_work(measures, timings, dict.fromkeys(timings, work), peak_tflops(workload, device))
    return Found(
        workload=workload,
        parameters=parameters(field.base),
        device=device,
        titles={name: ROWS[name] for name in options.rows},
        reference=REFERENCE,
        timings=timings,
        measures=measures,
        absent=field.absent,
        notes=notes,
    )


async def _sweep(workload: WorkloadOptions, options: LearnerBench, folder: Path, tell: Tell) -> Found:
    """mas alone at every point, all points over one base."""
    base = make_base(workload, folder / "base", seed=options.seed, threads=options.threads)
    learners: list[LearnerCompetitor] = []
    works: dict[str, StepWork] = {}
    for value, point in workload.points.items():
        adapters = make_adapters(base, point, options.seed)
        rows = make_rows(base, adapters, point, options.seed)
        learners.append(our_learner(value, base, adapters, rows, point))
        works[value] = StepWork.of(point, rows, weights_of(adapters))
        tell(f"{workload.name}, {workload.point_title(value)}: {len(rows)} rows, {useful_tokens(rows)} tokens a step")
    measures: Measures = {one.name: {} for one in learners}
    for one in learners:  # the optimisers' state is no part of a step's memory
        await one.run(0)
    notes = await _add_peaks(learners, measures, base.bank.device)
    timings, device = await take_turns(learners, options.repeats, tell), device_name(base)
    _add_work(measures, timings, works, peak_tflops(workload, device))
    return Found(
        workload=workload,
        parameters=parameters(base),
        device=device,
        titles={value: f"mas, {workload.point_title(value)}" for value in workload.points},
        reference=learners[0].name,
        timings=timings,
        measures=measures,
        absent={},
        notes=notes,
    )


async def _equal_steps(competitors: Sequence[LearnerCompetitor], most: float, tell: Tell) -> Measures:
    """Everybody's first step, all from the same weights, and how far it is from the padded loop's."""
    for one in competitors:
        await one.run(0)
    right = next(one for one in competitors if one.name == PADDED)
    found: Measures = {one.name: {} if one is right or not one.adapters else gaps(one, right) for one in competitors}
    check_gaps(found, most)
    largest = max(gap for own in found.values() for gap in own.values())
    tell(f"the first step is the same for all: gradients and losses within {largest:.1e}")
    return found


async def _add_peaks(
    competitors: Sequence[LearnerCompetitor], measures: Mapping[str, dict[str, float]], device: torch.device
) -> tuple[str, ...]:
    """One more step of each, which is not timed; returns why there are no peaks, if there are none."""
    reason = why_unmeasured(device)
    if reason:
        return (reason,)
    for one in competitors:
        forget_gradients(competitors)
        measures[one.name][PEAK] = await peak_mib(device, one)
    return ()


def _add_work(
    measures: Mapping[str, dict[str, float]],
    timings: Mapping[str, Timing],
    works: Mapping[str, StepWork],
    peak: float | None,
) -> None:
    """What each one's median step computed, and which share of the device's peak that is."""
    for name, timing in timings.items():
        measures[name] |= works[name].measures(median(timing.seconds), peak)
