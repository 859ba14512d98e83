"""What is published: adapter versions, what an engine must offer for them, and the canary that compares the two sides.

`HeldVersion` is a version as the store holds it: loaded while it is used, and logged as the store's.

`bare_version` is the bare base as an adapter of zeros, for engines that mix it with adapters wrongly. vLLM's CPU
kernels give rows without an adapter the adapter in their last slot (`lora_weights[-1]`), which is wrong as soon as that
slot was ever used. An adapter that adds nothing is the base, whatever the kernels do.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Protocol

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError, ModelError, NotServed
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_files import VersionFiles, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.model_sources import Origin

TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
"""Mean nats a token by which engine and trainer may differ at least, by the type that the model computes in.

In bfloat16 it depends on the model; `mas.training.packing_check` measures it.
"""
TOLERANCE_OVER_ROUNDING = 3.0
"""A measured tolerance over the rounding that was measured: other kernels (vLLM's, flex attention) round otherwise."""
_ROUNDING = {"float32": 2e-5}
"""Differences below this may be rounding: an update that moves less cannot be told from none by its scores.

Of other types: the whole tolerance.
"""
_log = logging.getLogger("mas.serving.store")
_BARE_NUMBER = 2**30
"""Far above the numbers that the store gives away one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class AdapterVersion:
    """One immutable version. `number` is unique in this process and never used again; `path` holds its PEFT files."""

    ref: AdapterRef
    number: int
    weights: AdapterWeights
    path: Path | None


def check_version(bank: AdapterBank, version: AdapterVersion) -> None:
    """Refuse an adapter that would break the batches that it is used in.

    Raises:
        EngineError: a layer or shape that the base does not have, or a number that is none.
    """
    try:
        bank.check(version.weights)
    except ModelError as error:
        raise EngineError(f"adapter {version.ref} cannot be served: {error}") from None


class Scorer(Protocol):
    """What the canary needs of an engine. `dtype`: what the model computes in."""

    @property
    def dtype(self) -> str: ...

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        """Log-probabilities (temperature 1) of a completion under one version, None: the bare base."""


class AdapterHost(Scorer, Protocol):
    """What the store needs of an engine.

    `reads_files`: versions are handed over as PEFT directories; `origin`: where the base comes from, which the files
    name.
    """

    @property
    def reads_files(self) -> bool: ...

    @property
    def origin(self) -> Origin: ...

    async def load(self, version: AdapterVersion) -> None:
        """Make a version ready beside those that are."""

    async def unload(self, version: AdapterVersion) -> None:
        """Forget a version; it is not requested again unless it is loaded again."""


class VersionEngine(AdapterHost, Protocol):
    """An engine that generates with a version that it has loaded, whatever its store knows."""

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        """As `Engine.generate`, of a request that was checked; the adapter that it names does not matter.

        Raises:
            EngineError: as `Engine.generate`.
        """

    async def close(self) -> None:
        """As `Engine.close`."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A completion of L tokens and its L log-probabilities (temperature 1) as the trainer computes them."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


Rescored = Callable[[], Awaitable[Sequence[Probe]]]
"""Probes once more, as the trainer scores them with the version that serves until now, in a pass of the same shape."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing found: mean nats a token, None without probes (or without a version before).

    `gap`: engine against trainer, `allowed` how large it may be; `from_previous`: how far the new version is from the
    one before; `seconds`: of all that was published at once.
    """

    ref: AdapterRef
    gap: float | None
    from_previous: float | None
    seconds: float
    allowed: float | None = None

    def metrics(self) -> dict[str, float]:
        found = {"gap": self.gap, "allowed": self.allowed, "from_previous": self.from_previous}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class AdapterUpdate:
    """What one name is to serve.

    `probes`: what the canary compares. `version`: a later one than the next, as when a run resumes; None: the next.
    `before`: asked only if an engine scores the probes as it did before.
    """

    weights: AdapterWeights
    probes: Sequence[Probe] = ()
    version: int | None = None
    before: Rescored | None = None


@dataclass(slots=True)
class HeldVersion:
    """A version that a store holds. `changing` is held while the engine loads or unloads it; `leases`: requests that
    use it now; `probes`, `allowed`: what its canary compared."""

    version: AdapterVersion
    probes: Sequence[Probe] = ()
    allowed: float | None = None
    is_loaded: bool = False
    leases: int = 0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def load(self, host: AdapterHost) -> None:
        """Load it into the engine, unless it is there.

        Raises:
            EngineError: it cannot be loaded.
        """
        if self.is_loaded:
            return
        async with self.changing:
            if not self.is_loaded:
                try:
                    await host.load(self.version)
                except asyncio.CancelledError:
                    await host.unload(self.version)  # it may be there already
                    raise
                self.is_loaded = True

    async def unload(self, host: AdapterHost) -> None:
        """Free the place in the engine; one that cannot, such as a dead one, must not fail what was served."""
        async with self.changing:
            if self.leases or not self.is_loaded:
                return
            self.is_loaded = False  # before the wait: who leases it meanwhile has it loaded again
            try:
                await host.unload(self.version)
            except EngineError as error:
                _log.warning("adapter %s could not be unloaded: %s", self.version.ref, error)

    async def forget(self, host: AdapterHost) -> None:
        """Unload it, and delete its files."""
        await self.unload(host)
        if self.version.path is not None:
            shutil.rmtree(self.version.path, ignore_errors=True)


async def canary(
    host: Scorer,
    made: AdapterVersion,
    before: AdapterVersion | None,
    probes: Sequence[Probe],
    allowed: float | None = None,
    name: str = "the engine",
    rescored: Rescored | None = None,
) -> tuple[float | None, float | None]:
    """Gap to the trainer, and distance from the version before; None for both without probes.

    Args:
        name: of the host, for errors.
        rescored: see `AdapterUpdate.before`; None: not known.
        allowed: the largest gap, mean nats a token; None: the least tolerance of the engine's type.

    Raises:
        NotServed: the gap is too large, or the new version scores like the version before though the trainer's does
            not, and rounding cannot explain it. That is known in float32 by the gap; in other types if the engine's
            scores are equal bit by bit and the trainer's are not, by more than rounding (`rescored`).
    """
    if not probes:
        return None, None
    tolerance = TOLERANCE[host.dtype] if allowed is None else allowed
    wanted = [value for probe in probes for value in probe.logprobs]
    versions = (made,) if before is None else (made, before)
    # asked for at once, so that an engine can score them in one pass
    scored, *previous = await together((_scores(host, one, probes) for one in versions), "canary")
    gap = _distance(scored, wanted)
    from_previous = _distance(scored, previous[0]) if previous else None
    is_stale = from_previous is not None and gap > max(10 * from_previous, _ROUNDING.get(host.dtype, tolerance))
    # Whatever changes the trainer's sums by more than rounding changes some last bit of the engine's.
    if from_previous == 0 and rescored is not None and not is_stale:
        moved = _distance(wanted, [value for probe in await rescored() for value in probe.logprobs])
        is_stale = moved > tolerance / TOLERANCE_OVER_ROUNDING
    if is_stale or not gap <= tolerance:
        why = f"; it scores like the version before, to {from_previous:.2g}: not delivered" if is_stale else ""
        raise NotServed(
            f"adapter {made.ref} is not served as it was trained: {name}'s log-probabilities differ from the "
            f"trainer's by {gap:.2g} nats a token, at most {tolerance:.2g} is allowed{why}"
        )
    return gap, from_previous


async def _scores(host: Scorer, version: AdapterVersion | None, probes: Sequence[Probe]) -> list[float]:
    calls = (host.score_version(version, probe.prompt_ids, probe.completion_ids) for probe in probes)
    return [value for scores in await together(calls, "canary-probe") for value in scores]


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Mean absolute difference in nats."""
    return fmean(abs(a - b) for a, b in zip(first, second, strict=True))


def bare_version(base: BaseModel, files: VersionFiles) -> AdapterVersion:
    """A version that changes nothing, with its files; no store knows it.

    Raises:
        EngineError: they cannot be written.
    """
    weights = base.bank.create(base.options.lora.model_copy(update={"rank": 1}), 0)
    try:
        path = files.write("base", to_files(weights, base.origin))
    except OSError as error:
        raise EngineError(f"the files of an adapter cannot be written: {error}") from error
    return AdapterVersion(AdapterRef("base", 0), _BARE_NUMBER, weights, path)
