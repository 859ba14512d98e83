"""How long publishing an adapter takes, canary included, while the engine rests and while it works."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

from benchmarks.models import make_adapter
from benchmarks.rounds import Competitor
from benchmarks.serving.completions import Made
from mas.core.engine import AdapterRef
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.publication import AdapterVersion, Probe
from mas.serving.store import ServingEngine
from mas.serving.transformers_engine import TransformersEngine

COUNT = 3
"""Publications at rest, and as many under load."""
PROBES = 2
"""Completions that the canary scores."""
_PAUSE_S = 0.05
"""Between publications under load, so that they meet different moments of the work."""


@dataclass(frozen=True, slots=True)
class Update:
    """New weights with the canary's probes, as a trainer hands them over."""

    weights: AdapterWeights
    probes: tuple[Probe, ...]


async def make_updates(checker: TransformersEngine, made: Made, count: int) -> list[Update]:
    """Different adapters, each with the log-probabilities that transformers gives completions of a round."""
    updates = []
    for number in range(count):
        weights = make_adapter(checker.base, "update", number)
        version = AdapterVersion(AdapterRef("update", number), 0, weights, None)
        probes = []
        for request, one in list(zip(made.requests, made.generations, strict=True))[:PROBES]:
            scores = await checker.score_version(version, request.prompt_ids, one.token_ids)
            probes.append(Probe(request.prompt_ids, one.token_ids, scores))
        updates.append(Update(weights, tuple(probes)))
    return updates


async def publish_latency(
    engine: ServingEngine, name: str, updates: Sequence[Update], work: Competitor
) -> dict[str, float]:
    """Median and largest milliseconds from `store.publish` to the new version serving.

    Args:
        updates: half of them are published at rest, half while `work` runs again and again.
    """
    half = len(updates) // 2
    idle = [await _publish_ms(engine, name, update) for update in updates[:half]]
    busy = []
    async with _under_load(work):
        for update in updates[half:]:
            await asyncio.sleep(_PAUSE_S)
            busy.append(await _publish_ms(engine, name, update))
    return {
        "publish_idle_ms": median(idle),
        "publish_idle_max_ms": max(idle),
        "publish_load_ms": median(busy),
        "publish_load_max_ms": max(busy),
    }


async def _publish_ms(engine: ServingEngine, name: str, update: Update) -> float:
    began = time.perf_counter()
    await engine.store.publish(name, update.weights, probes=update.probes)
    return 1000 * (time.perf_counter() - began)


@asynccontextmanager
async def _under_load(work: Competitor) -> AsyncIterator[None]:
    """Within the block the work is done over and over."""
    is_over = asyncio.Event()

    async def keep_on() -> None:
        while not is_over.is_set():
            await work.run(0)

    task = asyncio.create_task(keep_on(), name="bench-load")
    try:
        yield
    finally:
        is_over.set()
        await task
