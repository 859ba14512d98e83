"""Adapter versions: never changed once published, checked before they serve, kept while they are used.

Publishing writes the PEFT files (for engines that read files), loads them beside the version that serves, scores a few
completions, and only then lets the name point to the new version: whatever fails, the old one keeps serving. A version
that is no longer current is unloaded when its last lease ends.
"""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Engine
from mas.core.errors import EngineError, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_files import VersionFiles, exported_files, from_directory, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.publication import (
    AdapterHost,
    AdapterUpdate,
    AdapterVersion,
    HeldVersion,
    Probe,
    Publication,
    Rescored,
    Scorer,
    canary,
)

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")
_NUMBER = re.compile(r"[0-9]{1,18}")


class ServingEngine(Engine, Protocol):
    """An engine that trained adapters are published to."""

    store: "AdapterStore"


@dataclass(slots=True)
class _Name:
    """All that is known of one adapter name. `kept`: version number -> entry, the last to become current last."""

    kept: dict[int, HeldVersion] = field(default_factory=dict)
    current: int = -1
    latest: int = -1
    is_frozen: bool = False


class AdapterStore:
    """The versions of every adapter of one engine.

    Args:
        keep: how many versions before the current one stay available for `roll_back` and `NAME@VERSION`.
        files: where versions' files lie for an engine that reads them; None: in this machine's memory.
        parts: the replicas that the engine consists of, by name: each has to pass the canary. None: the engine does.
    """

    _numbers = itertools.count(1)

    def __init__(
        self,
        host: AdapterHost,
        *,
        keep: int = 1,
        files: Path | None = None,
        parts: Callable[[], Mapping[str, Scorer]] | None = None,
    ) -> None:
        self._host = host
        self._parts = parts or (lambda: {"the engine": host})
        self._keep = keep
        self._names: dict[str, _Name] = {}
        self._changing = asyncio.Lock()
        self._files = VersionFiles(files)

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
        self,
        name: str,
        weights: AdapterWeights,
        *,
        version: int | None = None,
        probes: Sequence[Probe] = (),
        allowed: float | None = None,
    ) -> Publication:
        """As `publish_all`, for one adapter."""
        return (await self.publish_all({name: AdapterUpdate(weights, probes, version)}, allowed=allowed))[name]

    async def publish_all(
        self, updates: Mapping[str, AdapterUpdate], *, allowed: float | None = None
    ) -> Mapping[str, Publication]:
        """Serve copies of adapters' weights as their names' next versions: all of them, or none, also if cancelled.

        Args:
            allowed: the largest gap that the canary lets pass, in mean nats a token (see `canary`).

        Raises:
            EngineError: a name is frozen, a version is not later than the latest, or loading failed.
            NotServed: the canary found that the engine computes something else. The old versions keep serving.
        """
        async with self._changing:
            return await self._publish(updates, allowed)

    async def _publish(
        self, updates: Mapping[str, AdapterUpdate], allowed: float | None = None
    ) -> dict[str, Publication]:
        began = time.perf_counter()
        refs = {name: self._next(name, update.version) for name, update in updates.items()}
        async with self._made((ref, updates[name].weights) for name, ref in refs.items()) as entries:
            for entry, update in zip(entries, updates.values(), strict=True):
                entry.probes, entry.allowed = update.probes, allowed
            # asked for at once: one pass can score them all
            proofs = (
                self._proved(entry, update.before) for entry, update in zip(entries, updates.values(), strict=True)
            )
            found = await together(proofs, "canary-adapter")
        await self._serve(entries)
        took = time.perf_counter() - began
        return {
            name: Publication(ref, *gaps, seconds=took, allowed=allowed)
            for (name, ref), gaps in zip(refs.items(), found, strict=True)
        }

    async def _proved(self, entry: HeldVersion, before: Rescored | None) -> tuple[float | None, float | None]:
        """The worst of what the canary finds in the parts of the engine."""
        served = self._served(entry.version.ref.name)
        checks = [
            canary(part, entry.version, served, entry.probes, entry.allowed, name, before)
            for name, part in self._parts().items()
        ]
        return max(await together(checks, "canary-part"), key=lambda gaps: gaps[0] or 0.0)

    async def prove(self, name: str, part: Scorer, version: AdapterVersion | None = None) -> None:
        """Have a part of the engine that was started again pass the canary of a version once more, None: of every
        current one, as far as there were probes.

        Raises:
            NotServed: it computes something else.
        """
        entries = [held.kept[held.current] for held in self._names.values()]
        if version is not None:
            entries = [one for held in self._names.values() for one in held.kept.values() if one.version is version]
        checks = [canary(part, entry.version, None, entry.probes, entry.allowed, name) for entry in entries]
        await together(checks, "canary-again")

    def _next(self, name: str, version: int | None) -> AdapterRef:
        """The next version of a name, or the given one."""
        if not _NAME.fullmatch(name):
            raise EngineError(f"{name!r} is no name for an adapter: use letters, digits, '_', '-' and '.'")
        held = self._names.get(name, _Name())
        if held.is_frozen:
            raise EngineError(f"adapter {name!r} is frozen at version {held.current}; unfreeze it to publish")
        ref = AdapterRef(name, held.latest + 1 if version is None else version)
        if ref.version <= held.latest:
            raise EngineError(f"version {ref.version} of adapter {name!r} is not later than {held.latest}, the latest")
        return ref

    def _served(self, name: str) -> AdapterVersion | None:
        """The version that a name points to, or None if it has none yet."""
        held = self._names.get(name)
        return None if held is None else held.kept[held.current].version

    @asynccontextmanager
    async def _made(self, wanted: Iterable[tuple[AdapterRef, AdapterWeights]]) -> AsyncIterator[list[HeldVersion]]:
        """New versions, loaded; none of them stays if one cannot be made, or the block fails or is cancelled."""
        entries: list[HeldVersion] = []
        is_good = False
        try:
            for ref, weights in wanted:
                entries.append(HeldVersion(self._make(ref, weights.snapshot())))
                await entries[-1].load(self._host)
            yield entries
            is_good = True
        finally:
            for entry in [] if is_good else entries:
                await entry.forget(self._host)

    async def _serve(self, entries: Sequence[HeldVersion]) -> None:
        """Let names point to versions that are loaded: all at once, with no wait at which it could be cancelled between
        two names; then unload what they pointed to. What a cancellation leaves loaded goes with the name's next change.
        """
        for entry in entries:
            name, number = entry.version.ref.name, entry.version.ref.version
            held = self._names.setdefault(name, _Name())
            held.kept[number] = entry
            held.current = held.latest = number
        for entry in entries:
            await self._retire(self._names[entry.version.ref.name])

    @asynccontextmanager
    async def lease(self, adapter: str | None) -> AsyncIterator[AdapterVersion | None]:
        """Hold `NAME` (the version current now) or `NAME@VERSION` until the block ends; None is the bare base.

        Raises:
            UnknownAdapter: no such adapter or version is kept.
        """
        if adapter is None:
            yield None
            return
        entry = self._entry(adapter)
        entry.leases += 1
        try:
            await entry.load(self._host)
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
        async with self._changing:
            entry = self._entry(f"{name}@{version}")
            self._check_free(name)
            held = self._names[name]
            await entry.load(self._host)
            held.kept[version] = held.kept.pop(version)
            held.current = version
            await self._retire(held)
        return entry.version.ref

    async def fork(self, name: str, source: str) -> AdapterRef:
        """A new name that begins with the weights of `source` (`NAME` or `NAME@VERSION`).

        Raises:
            EngineError: the name exists. UnknownAdapter: the source does not.
        """
        async with self._changing:
            if name in self._names:
                raise EngineError(f"adapter {name!r} exists already; fork to a name that is free")
            return (await self._publish({name: AdapterUpdate(self.weights(source))}))[name].ref

    async def swap(self, first: str, second: str) -> None:
        """Exchange what two names speak with, each as a new version. Nothing changes if either cannot be loaded; both
        change at once."""
        async with self._changing:
            weights = {first: self.weights(second), second: self.weights(first)}
            for name in weights:
                self._check_free(name)
            wanted = [(AdapterRef(name, self._names[name].latest + 1), weights[name]) for name in weights]
            async with self._made(wanted) as entries:
                pass
            await self._serve(entries)

    def freeze(self, name: str) -> None:
        """Refuse new versions of a name until `unfreeze`."""
        self._held(name).is_frozen = True

    def unfreeze(self, name: str) -> None:
        """Allow new versions again."""
        self._held(name).is_frozen = False

    def export(self, adapter: str, directory: Path) -> None:
        """Write `NAME` or `NAME@VERSION` as a PEFT directory; it must not exist."""
        write_directory_atomic(directory, exported_files(self.weights(adapter), self._host.origin))

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
        self._files.close()

    def _make(self, ref: AdapterRef, weights: AdapterWeights) -> AdapterVersion:
        number = next(self._numbers)
        if not self._host.reads_files:
            return AdapterVersion(ref, number, weights, None)
        try:
            path = self._files.write(f"{ref.name}-{ref.version}-{number}", to_files(weights, self._host.origin))
        except OSError as error:
            raise EngineError(f"adapter {ref} cannot be written: {error}") from error
        return AdapterVersion(ref, number, weights, path)

    async def _retire(self, held: _Name) -> None:
        """Unload what is neither current nor leased; forget all of it but the versions to keep."""
        behind = [number for number in held.kept if number != held.current]
        for number in behind:
            entry = held.kept.get(number)
            if entry is None or entry.leases or number == held.current:
                continue
            if number in behind[: max(len(behind) - self._keep, 0)]:
                del held.kept[number]
                await entry.forget(self._host)
            else:
                await entry.unload(self._host)

    def _held(self, name: str) -> _Name:
        try:
            return self._names[name]
        except KeyError:
            raise UnknownAdapter(f"no adapter {name!r} is published. {did_you_mean(name, self._names)}") from None

    def _entry(self, adapter: str) -> HeldVersion:
        name, at, number = adapter.partition("@")
        held = self._held(name)
        if not at:
            return held.kept[held.current]
        entry = held.kept.get(int(number)) if _NUMBER.fullmatch(number) else None
        if entry is None:
            raise UnknownAdapter(f"no version {number!r} of adapter {name!r} is kept; kept are: {[*held.kept]}")
        return entry

    def _check_free(self, name: str) -> None:
        if self._held(name).is_frozen:
            raise EngineError(f"adapter {name!r} is frozen; unfreeze it first")
