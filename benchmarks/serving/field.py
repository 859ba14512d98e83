"""Everybody who competes at one size, over the same weights."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.models import make_adapter, peft_model, plain_model, write_adapters
from benchmarks.rounds import Competitor
from benchmarks.serving.competitors import EngineCompetitor, GenerateCompetitor
from benchmarks.serving.models import make_base
from benchmarks.serving.options import GENERATE, OURS, OURS_BASE, PEFT, VLLM, VLLM_BASE, ServingBench
from benchmarks.serving.workload import Workload
from mas.config.options import EngineOptions
from mas.core.errors import ModelError
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine


@dataclass(frozen=True, slots=True)
class Field:
    """One size's competitors.

    Attributes:
        simple: competitors that call `generate`; `engines`: those that are engines of ours; both by row.
        peft: what says which log-probabilities are right; None where it was left out.
        absent: row -> why it could not run here.
    """

    base: BaseModel
    ours: TransformersEngine
    simple: Mapping[str, GenerateCompetitor]
    engines: Mapping[str, EngineCompetitor]
    peft: Any
    absent: Mapping[str, str]

    def competitors(self) -> list[Competitor]:
        """All that run."""
        return [*self.simple.values(), *self.engines.values()]


@asynccontextmanager
async def open_field(size: str, options: ServingBench, workload: Workload, folder: Path) -> AsyncIterator[Field]:
    """Make the base and its adapters in the folder, and everybody who serves them; engines are closed at the end."""
    base = make_base(size, folder / "base", seed=options.seed, threads=options.threads)
    adapters = {name: make_adapter(base, options.seed, name) for name in workload.adapters if name is not None}
    simple = {}
    if GENERATE in options.rows:
        simple[GENERATE] = GenerateCompetitor(GENERATE, plain_model(base), workload, is_mixed=False)
    peft = peft_model(base, write_adapters(base, adapters, folder)) if PEFT in options.rows else None
    if peft is not None:
        simple[PEFT] = GenerateCompetitor(PEFT, peft, workload, is_mixed=True)
    ours = TransformersEngine(base)
    vllm: VllmEngine | None = None
    try:
        engines = await _rows_of(ours, (OURS_BASE, OURS), adapters, workload)
        absent = ""
        if VLLM in options.rows:
            vllm, absent = await _start_vllm(base, options)
        if vllm is not None:
            engines |= await _rows_of(vllm, (VLLM_BASE, VLLM), adapters, workload)
        yield Field(base, ours, simple, engines, peft, dict.fromkeys((VLLM_BASE, VLLM), absent) if absent else {})
    finally:
        await ours.close()
        if vllm is not None:
            await vllm.close()


async def _rows_of(
    engine: TransformersEngine | VllmEngine,
    names: tuple[str, str],
    adapters: Mapping[str, AdapterWeights],
    workload: Workload,
) -> dict[str, EngineCompetitor]:
    """The engine with the bare base, and with all adapters."""
    for name, weights in adapters.items():
        await engine.store.publish(name, weights)
    return {
        name: EngineCompetitor(name, engine, workload, is_mixed=is_mixed)
        for name, is_mixed in zip(names, (False, True), strict=True)
    }


async def _start_vllm(base: BaseModel, options: ServingBench) -> tuple[VllmEngine | None, str]:
    """vLLM, or why there is none. Its prefix cache is off, as nobody else keeps what it read a moment ago."""
    if find_spec("vllm") is None:
        return None, "not installed"
    engine = EngineOptions(name="vllm", vllm={"enable_prefix_caching": False})
    try:
        with _omp_threads(options.threads):
            return await VllmEngine.start(base, engine, rank=base.options.lora.rank), ""
    except ModelError as error:
        return None, f"cannot run here: {error}".splitlines()[0]


@contextmanager
def _omp_threads(count: int) -> Iterator[None]:
    """Within the block, processes that start take this many threads."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = str(count)
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
