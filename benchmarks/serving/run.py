"""Running `mas bench serving`: every size in turn, all its competitors side by side."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.machine import describe, load
from benchmarks.models import device_name, parameters, torch_threads
from benchmarks.result import LEFT_OUT, Result, Row, Target
from benchmarks.rounds import Timing, ratio, take_turns
from benchmarks.serving.competitors import logprob_gap
from benchmarks.serving.field import Field, open_field
from benchmarks.serving.options import OURS, OURS_BASE, PEFT, PRETRAINED, REFERENCE, VLLM, ServingBench
from benchmarks.serving.pretrained import GAP, bench_pretrained
from benchmarks.serving.publishing import COUNT, make_updates, publish_latency
from benchmarks.serving.workload import Workload

Tell = Callable[[str], None]

PEFT_GOAL = 1.5
"""Three adapters and the base in one batch: tokens per second / PEFT's."""
BASE_GOAL = 0.8
"""The same / the bare base's: what adapters may cost."""
GAP_GOAL = 1e-5
"""Nats by which a completion's log-probabilities may differ from PEFT's, in float32."""


async def bench_serving(options: ServingBench, tell: Tell) -> Result:
    """Measure every size.

    Raises:
        EngineError: a competitor made another number of tokens than was wanted, so that its speed means nothing.
    """
    load_before, device = load(), ""
    workload = Workload(requests=options.requests, seed=options.seed)
    rows: list[Row] = []
    targets: list[Target] = []
    with torch_threads(options.threads):
        for size in options.sizes:
            if size in PRETRAINED:
                pretrained = await bench_pretrained(size, options, tell)
                rows += pretrained.rows
                targets += pretrained.targets
                device = pretrained.device or device
                continue
            tell(f"{size}: {workload.requests} requests, {workload.wanted} tokens a round")
            with TemporaryDirectory(prefix="mas-bench-") as folder:
                async with open_field(size, options, workload, Path(folder)) as field:
                    timings = await take_turns(field.competitors(), options.repeats, tell)
                    measures = await _measures(field, tell)
                    rows += _rows(size, options, field, timings, measures)
                    targets += _targets(size, timings, measures)
                    device = device_name(field.base)
    return Result(
        bench="serving",
        machine=describe(load_before=load_before, threads=options.threads, device=device),
        workload={"requests": workload.requests, "tokens": workload.wanted, "seed": workload.seed},
        rows=tuple(rows),
        targets=tuple(targets),
    )


async def _measures(field: Field, tell: Tell) -> dict[str, dict[str, float]]:
    """Row -> what else is known of it: the gap to PEFT of engines, and publishing of those that serve adapters."""
    measures: dict[str, dict[str, float]] = {name: {} for name in (*field.simple, *field.engines)}
    if field.peft is not None:
        for name, engine in field.engines.items():
            measures[name][GAP] = logprob_gap(field.peft, engine.last(), is_mixed=True)
    updates = await make_updates(field.ours, field.engines[OURS].last(), 2 * COUNT)
    for name in (OURS, VLLM):
        if name in field.engines:
            tell(f"publishing: {name}")
            work = field.engines[name]
            measures[name] |= await publish_latency(work.engine, "a", updates, work)
    return measures


def _rows(
    size: str,
    options: ServingBench,
    field: Field,
    timings: Mapping[str, Timing],
    measures: Mapping[str, dict[str, float]],
) -> list[Row]:
    count, reference = parameters(field.base), timings[REFERENCE]
    return [
        Row(name=name, size=size, parameters=count, note=field.absent[name])
        if name in field.absent
        else Row.measured(name, size, count, timings[name], reference, measures[name])
        for name in options.rows
    ]


def _targets(size: str, timings: Mapping[str, Timing], measures: Mapping[str, dict[str, float]]) -> list[Target]:
    """What is promised of one size; what adapters cost can be measured without PEFT."""
    found = [Target.at_least(f"{size}: {OURS} / {OURS_BASE}", ratio(timings[OURS], timings[OURS_BASE]), BASE_GOAL)]
    faster = gap = None
    if PEFT in timings:
        faster = ratio(timings[OURS], timings[PEFT])
        gap = max(measures[name][GAP] for name in (OURS, OURS_BASE))
    note = "" if PEFT in timings else LEFT_OUT
    return [
        *found,
        Target.at_least(f"{size}: {OURS} / {PEFT}", faster, PEFT_GOAL, note),
        Target.at_most(f"{size}: log-probabilities of mas against PEFT's, nats", gap, GAP_GOAL, note),
    ]
