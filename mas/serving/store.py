"""Adapter versions: never changed once published, checked before they serve, kept while somebody uses them.

Publishing writes the PEFT files (for engines that read files), loads them beside the version that serves, scores a few
completions, and only then lets the name point to the new version: whatever fails, the old one keeps serving. A version
that is no longer current is unloaded when its last lease ends.
"""

import itertools
import os
import shutil
import tempfile
import time
import weakref
from asyncio import Lock
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from types import MappingProxyType
from typing import Protocol

from mas.core.engine import AdapterRef, Engine
from mas.core.errors import EngineError, NotServed, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.observe.atomic import write_directory_atomic
from mas.serving.lora import AdapterBank, AdapterWeights
from mas.serving.peft_files import from_directory, to_files

TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}
"""Mean nats a token by which engine and trainer may differ, by the type that the model computes in."""
_ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2}
"""Differences below this are rounding: no smaller update can be told from none by its scores."""
_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True, eq=False)
class AdapterVersion:
    """One immutable version. `number` is unique in this process and never used again; `path` holds its PEFT files."""

    ref: AdapterRef
    number: int
    weights: AdapterWeights
    path: Path | None


class AdapterHost(Protocol):
    """What the store needs of an engine.

    `reads_files`: versions are handed over as PEFT directories; `dtype`: what the model computes in; `base_name`:
    where the base came from.
    """

    @property
    def reads_files(self) -> bool: ...

    @property
    def dtype(self) -> str: ...

    @property
    def base_name(self) -> str: ...

    async def load(self, version: AdapterVersion) -> None:
        """Make a version ready beside those that are."""

    async def unload(self, version: AdapterVersion) -> None:
        """Forget a version; nobody will ask for it again unless it is loaded again."""

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        """Log-probabilities (temperature 1) of a completion under one version, None: the bare base."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A completion of L tokens and its L log-probabilities (temperature 1) as the trainer computes them."""

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Publication:
    """What publishing found: mean nats a token, None without probes (or without a version before).

    `gap`: engine against trainer; `from_base`, `from_previous`: how far the new version is from these.
    """

    ref: AdapterRef
    gap: float | None
    from_base: float | None
    from_previous: float | None
    seconds: float

    def metrics(self) -> dict[str, float]:
        """What the canary measured, by name."""
        found = {"gap": self.gap, "from_base": self.from_base, "from_previous": self.from_previous}
        return {name: value for name, value in found.items() if value is not None}


class ServingEngine(Engine, Protocol):
    """An engine that trained adapters are published to."""

    store: "AdapterStore"


@dataclass(slots=True)
class _Entry:
    version: AdapterVersion
    is_loaded: bool = False
    leases: int = 0


@dataclass(slots=True)
class _Name:
    """All that is known of one adapter name. `kept`: version number -> entry, the last to become current last."""

    kept: dict[int, _Entry] = field(default_factory=dict)
    current: int = -1
    latest: int = -1
    is_frozen: bool = False


class AdapterStore:
    """The versions of every adapter of one engine.

    Args:
        keep: how many versions before the current one stay available for `roll_back` and for `NAME@VERSION`.
    """

    _numbers = itertools.count(1)

    def __init__(self, host: AdapterHost, *, keep: int = 1) -> None:
        self._host = host
        self._keep = keep
        self._names: dict[str, _Name] = {}
        self._changing = Lock()
        self._folder: Path | None = None

    def current(self) -> Mapping[str, AdapterRef]:
        """The version that each name now points to."""
        return MappingProxyType({name: held.kept[held.current].version.ref for name, held in self._names.items()})

    def versions(self, name: str) -> tuple[AdapterRef, ...]:
        """The versions of a name that are kept, the last to become current last."""
        return tuple(entry.version.ref for entry in self._held(name).kept.values())

    def weights(self, adapter: str) -> AdapterWeights:
        """The weights of `NAME` (its current version) or `NAME@VERSION`; not to be changed.

        Raises:
            UnknownAdapter: no such adapter or version is kept.
        """
        return self._entry(adapter).version.weights

    async def publish(
        self, name: str, weights: AdapterWeights, *, version: int | None = None, probes: Sequence[Probe] = ()
    ) -> Publication:
        """Serve a copy of the weights as the name's next version (or the given later one, when resuming).

        Raises:
            EngineError: the name is frozen, the version is not later than the latest, or loading failed.
            NotServed: the canary found that the engine computes something else. The old version keeps serving.
        """
        async with self._changing:
            return await self._publish(name, weights, version, probes)

    async def _publish(
        self, name: str, weights: AdapterWeights, version: int | None, probes: Sequence[Probe]
    ) -> Publication:
        began = time.perf_counter()
        held = self._names.get(name, _Name())
        if held.is_frozen:
            raise EngineError(f"adapter {name!r} is frozen at version {held.current}; unfreeze it to publish")
        ref = AdapterRef(name, held.latest + 1 if version is None else version)
        if ref.version <= held.latest:
            raise EngineError(f"version {ref.version} of adapter {name!r} is not later than {held.latest}, the latest")
        made = self._make(ref, weights.snapshot())
        entry = _Entry(made)
        before = held.kept.get(held.current)
        try:
            await self._load(entry)
            found = await self._canary(made, before.version if before is not None else None, probes)
        except BaseException:
            await self._forget(entry)
            raise
        held.kept[ref.version] = entry
        held.current = held.latest = ref.version
        self._names[name] = held
        await self._retire(held)
        return Publication(ref, *found, seconds=time.perf_counter() - began)

    async def _canary(
        self, made: AdapterVersion, before: AdapterVersion | None, probes: Sequence[Probe]
    ) -> tuple[float | None, float | None, float | None]:
        """Gap to the trainer, distance from the base and from the version before.

        An update that was not delivered leaves the engine as far from the trainer as the old version was: the gap must
        be below half of that, too, unless rounding hides it.
        """
        if not probes:
            return None, None, None
        wanted = [value for probe in probes for value in probe.logprobs]
        scored = await self._scores(made, probes)
        gap = _distance(scored, wanted)
        from_base = _distance(scored, await self._scores(None, probes))
        allowed, rounding = TOLERANCE[self._host.dtype], _ROUNDING[self._host.dtype]
        from_previous = None
        if before is not None:
            old = await self._scores(before, probes)
            from_previous = _distance(scored, old)
            allowed = min(allowed, max(_distance(old, wanted) / 2, rounding))
        if not gap <= allowed:
            raise NotServed(
                f"adapter {made.ref} is not served as it was trained: the engine's log-probabilities differ from the "
                f"trainer's by {gap:.2g} nats a token on {len(probes)} completions, at most {allowed:.2g} is allowed "
                f"(distance from the base {from_base:.2g}, from the version before {from_previous or 0:.2g})"
            )
        return gap, from_base, from_previous

    @asynccontextmanager
    async def lease(self, adapter: str) -> AsyncIterator[AdapterVersion]:
        """Hold `NAME` (the version current now) or `NAME@VERSION`: it stays loaded until the block ends.

        Raises:
            UnknownAdapter: no such adapter or version is kept.
        """
        entry = self._entry(adapter)
        entry.leases += 1
        try:
            if not entry.is_loaded:
                async with self._changing:
                    await self._load(entry)
            yield entry.version
        finally:
            entry.leases -= 1
            if not entry.leases:
                await self._retire(self._names[entry.version.ref.name])

    async def roll_back(self, name: str, version: int) -> AdapterRef:
        """Let a name point to a version that is kept. The next version published is still later than all before.

        Raises:
            UnknownAdapter: the version is not kept. EngineError: the name is frozen.
        """
        entry = self._entry(f"{name}@{version}")
        held = self._names[name]
        self._check_free(name)
        async with self._changing:
            if not entry.is_loaded:
                await self._load(entry)
            held.current = version
            held.kept[version] = held.kept.pop(version)
            await self._retire(held)
        return entry.version.ref

    async def fork(self, name: str, source: str) -> AdapterRef:
        """A new name that begins with the weights of `source` (`NAME` or `NAME@VERSION`).

        Raises:
            EngineError: the name exists. UnknownAdapter: the source does not.
        """
        if name in self._names:
            raise EngineError(f"adapter {name!r} exists already; fork to a name that is free")
        return (await self.publish(name, self.weights(source))).ref

    async def swap(self, first: str, second: str) -> None:
        """Exchange what two names speak with, each as a new version. Nothing changes if either cannot be loaded."""
        one, other = self.weights(first), self.weights(second)
        for name in (first, second):
            self._check_free(name)
        await self.publish(first, other)
        try:
            await self.publish(second, one)
        except BaseException:
            await self.publish(first, one)
            raise

    def freeze(self, name: str) -> None:
        """Refuse new versions of a name until `unfreeze`."""
        self._held(name).is_frozen = True

    def unfreeze(self, name: str) -> None:
        """Allow new versions again."""
        self._held(name).is_frozen = False

    def export(self, adapter: str, directory: Path) -> None:
        """Write `NAME` or `NAME@VERSION` as a PEFT directory; it must not exist."""
        write_directory_atomic(directory, to_files(self.weights(adapter), self._host.base_name))

    async def import_(self, name: str, directory: Path, bank: AdapterBank) -> AdapterRef:
        """Publish a PEFT LoRA directory of any rank, scale and targets that fit the base.

        Raises:
            CheckpointError: it is no such directory, or was made for another base.
        """
        return (await self.publish(name, from_directory(directory, bank))).ref

    def loaded(self) -> list[AdapterVersion]:
        """Every version that the engine should hold now: those to load again into one that was started anew."""
        held = [entry for name in self._names.values() for entry in name.kept.values()]
        return [entry.version for entry in held if entry.is_loaded]

    def close(self) -> None:
        """Delete all files; the store is not used again."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _make(self, ref: AdapterRef, weights: AdapterWeights) -> AdapterVersion:
        number = next(self._numbers)
        if not self._host.reads_files:
            return AdapterVersion(ref, number, weights, None)
        if self._folder is None:
            memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
            self._folder = Path(tempfile.mkdtemp(prefix="mas-adapters-", dir=memory))
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / f"{ref.name}-{ref.version}-{number}"
        write_directory_atomic(path, to_files(weights, self._host.base_name))
        return AdapterVersion(ref, number, weights, path)

    async def _load(self, entry: _Entry) -> None:
        if not entry.is_loaded:
            await self._host.load(entry.version)
            entry.is_loaded = True

    async def _retire(self, held: _Name) -> None:
        """Unload what is neither current nor leased; forget all of it but the versions to keep."""
        behind = [number for number in held.kept if number != held.current]
        for number in behind:
            entry = held.kept[number]
            if entry.leases:
                continue
            if entry.is_loaded:
                entry.is_loaded = False
                await self._host.unload(entry.version)
            if number in behind[: len(behind) - self._keep] and not entry.leases:
                await self._forget(held.kept.pop(number))

    async def _forget(self, entry: _Entry) -> None:
        if entry.is_loaded:
            entry.is_loaded = False
            await self._host.unload(entry.version)
        if entry.version.path is not None:
            shutil.rmtree(entry.version.path, ignore_errors=True)

    async def _scores(self, version: AdapterVersion | None, probes: Sequence[Probe]) -> list[float]:
        scores: list[float] = []
        for probe in probes:
            scores += await self._host.score_version(version, probe.prompt_ids, probe.completion_ids)
        return scores

    def _held(self, name: str) -> _Name:
        try:
            return self._names[name]
        except KeyError:
            raise UnknownAdapter(f"no adapter {name!r} is published. {did_you_mean(name, self._names)}") from None

    def _entry(self, adapter: str) -> _Entry:
        name, at, number = adapter.partition("@")
        held = self._held(name)
        if not at:
            return held.kept[held.current]
        entry = held.kept.get(int(number)) if number.isdecimal() else None
        if entry is None:
            raise UnknownAdapter(f"no version {number!r} of adapter {name!r} is kept; kept are: {[*held.kept]}")
        return entry

    def _check_free(self, name: str) -> None:
        if self._held(name).is_frozen:
            raise EngineError(f"adapter {name!r} is frozen; unfreeze it first")


def _distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Mean absolute difference in nats."""
    return fmean(abs(a - b) for a, b in zip(first, second, strict=True))
