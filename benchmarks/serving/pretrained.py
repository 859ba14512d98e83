"""The embedded engine against transformers' `generate` on a pretrained model, in float32 and bfloat16.

Leaves out PEFT, vLLM and publishing: the models of random weights measure those.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from benchmarks.models import parameters, plain_model
from benchmarks.result import LEFT_OUT, Row, Target
from benchmarks.rounds import Competitor, Timing, ratio, take_turns
from benchmarks.serving.competitors import EngineCompetitor, GenerateCompetitor, logprob_gap
from benchmarks.serving.options import GENERATE, OURS_BASE, REFERENCE, ServingBench
from benchmarks.serving.workload import Workload
from mas.config.options import ModelOptions
from mas.serving.model import load_base
from mas.serving.model_sources import why_not_cached
from mas.serving.transformers_engine import TransformersEngine

GAP = "logprob_gap"
DTYPES = ("float32", "bfloat16")
_STATIC = Workload(requests=16, prompt_tokens=(64, 64), completion_tokens=(32, 32))
_UNEVEN = Workload(requests=32)
BATCHES = {"static": (_STATIC, 0.9), "uneven": (_UNEVEN, 1.5)}
"""Name -> lengths, and the engine's tokens per second / those of `generate` at least. In a static batch `generate` pads
nothing and no row ends before another."""


@dataclass(slots=True)
class Pretrained:
    """What was measured of one model. `device`: empty where it did not run."""

    rows: list[Row]
    targets: list[Target]
    device: str = ""


async def bench_pretrained(size: str, options: ServingBench, tell: Callable[[str], None]) -> Pretrained:
    """Both types and both batches; without the model, rows that say so."""
    found = Pretrained([], [])
    reason = why_not_cached()
    for dtype in DTYPES:
        if reason:
            tell(f"{size} {dtype}: {reason}")
            for batch in BATCHES:
                _add(found, f"{size} {dtype}, {batch}", batch, options, {}, reason=reason)
            continue
        base = load_base(ModelOptions(path=size, dtype=dtype, threads=options.threads))
        plain = plain_model(base) if GENERATE in options.rows else None
        engine = TransformersEngine(base)
        found.device = str(base.bank.device)
        try:
            for batch, (like, _) in BATCHES.items():
                workload = replace(like, seed=options.seed, last_id=base.limits.vocabulary - 1)
                tell(f"{size} {dtype}, {batch}: {workload.requests} requests, {workload.wanted} tokens a round")
                ours = EngineCompetitor(OURS_BASE, engine, workload, is_mixed=False)
                competitors: list[Competitor] = [ours]
                if plain is not None:
                    competitors.append(GenerateCompetitor(GENERATE, plain, workload, is_mixed=False))
                timings = await take_turns(competitors, options.repeats, tell)
                gap = None if plain is None else logprob_gap(plain, ours.last())
                _add(found, f"{size} {dtype}, {batch}", batch, options, timings, gap=gap, count=parameters(base))
        finally:
            await engine.close()
        del base, plain, engine
        gc.collect()
    return found


def _add(
    found: Pretrained,
    title: str,
    batch: str,
    options: ServingBench,
    timings: Mapping[str, Timing],
    *,
    gap: float | None = None,
    count: int = 0,
    reason: str = "",
) -> None:
    """The rows and the target of one batch; `reason`: why it was not measured."""
    for name in (GENERATE, OURS_BASE):
        if name not in options.rows:
            continue
        if reason:
            found.rows.append(Row(name=name, size=title, parameters=0, note=f"not measured: {reason}"))
            continue
        measures = {GAP: gap} if gap is not None and name == OURS_BASE else {}
        found.rows.append(Row.measured(name, title, count, timings[name], timings[REFERENCE], measures))
    value = ratio(timings[OURS_BASE], timings[GENERATE]) if GENERATE in timings else None
    note = reason or ("" if GENERATE in timings else LEFT_OUT)
    found.targets.append(Target.at_least(f"{title}: {OURS_BASE} / {GENERATE}", value, BATCHES[batch][1], note))
