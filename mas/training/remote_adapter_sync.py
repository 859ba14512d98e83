"""The engine of an agent whose adapter is trained by another process: it uses whatever version is asked for.

A version is named by its content, and one that is not here is fetched from whoever asks for it. So a process that comes
late, comes back, or stands beside others for one agent needs no word from anybody about what it has missed.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import msgspec

from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.engine import AdapterRef, EngineWrapper, Generation, PinnedAdapter, Request
from mas.core.errors import CheckpointError, EngineError
from mas.runtime.payloads import Fetch, Fetched
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_files import digest_of, from_files
from mas.serving.store import ServingEngine

_PREFIX = "fetched."
"""Goes before an adapter's name in the agent's own store, where the agent may have one of that name already."""


class SyncedEngine(EngineWrapper[ServingEngine]):
    """Satisfies `mas.core.engine.Engine`; an adapter `NAME@VERSION:DIGEST` is fetched if it is not here.

    Args:
        engine: what generates; everything that is not so named is its own.
        trainer: address of whoever trains the team.
        envelopes: of the process's one agent.
    """

    def __init__(
        self, engine: ServingEngine, bank: AdapterBank, bus: Bus, *, trainer: str, envelopes: EnvelopeFactory
    ) -> None:
        super().__init__(engine)
        self._bank = bank
        self._bus = bus
        self._trainer = trainer
        self._envelopes = envelopes
        self._numbers: defaultdict[str, dict[str, int]] = defaultdict(dict)
        self._fetching: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        """As the engine; each completion names the version as the request did.

        Raises:
            EngineError: the version came damaged. CheckpointError: it does not fit this base. BusError: it cannot be
            had. Otherwise as the engine.
        """
        async with self._held(request.adapter) as (adapter, ref):
            made = await self._engine.generate(msgspec.structs.replace(request, adapter=adapter))
            return tuple(_named(one, ref) for one in made)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        async with (
            self._held(request.adapter) as (adapter, ref),
            aclosing(self._engine.stream(msgspec.structs.replace(request, adapter=adapter))) as pieces,
        ):
            async for piece in pieces:
                yield _named(piece, ref)

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        """As the engine, and fetching as `generate`."""
        async with self._held(adapter) as (own, _):
            return await self._engine.score(prompt_ids, completion_ids, own)

    def adapters(self) -> Mapping[str, AdapterRef]:
        """The engine's own, without what was fetched."""
        return {name: ref for name, ref in self._engine.adapters().items() if not name.startswith(_PREFIX)}

    @asynccontextmanager
    async def _held(self, adapter: str | None) -> AsyncIterator[tuple[str | None, AdapterRef | None]]:
        """What the engine calls an adapter, kept while it is in use, and what its asker calls it if it was fetched."""
        pinned = None if adapter is None else PinnedAdapter.parse(adapter)
        if pinned is None:
            yield adapter, None
            return
        async with AsyncExitStack() as stack:
            async with self._fetching[pinned.ref.name]:
                own = self._here(pinned) or await self._fetch(pinned)
                await stack.enter_async_context(self._engine.store.lease(str(own)))
            yield str(own), pinned.ref

    def _here(self, pinned: PinnedAdapter) -> AdapterRef | None:
        """The version as the store has it; None: it was never fetched, or dropped since."""
        name = _PREFIX + pinned.ref.name
        number = self._numbers[name].get(pinned.digest)
        return None if number is None or number not in self._kept(name) else AdapterRef(name, number)

    async def _fetch(self, pinned: PinnedAdapter) -> AdapterRef:
        answer = await self._bus.request(self._envelopes.new(self._trainer, Fetch(adapter=pinned)))
        files = answer.payload.files if isinstance(answer.payload, Fetched) else {}
        if digest_of(files) != pinned.digest:
            raise EngineError(f"adapter {pinned.ref} was not fetched as it was published: its digest is another one")
        try:
            weights = from_files(files, self._bank, f"adapter {pinned.ref}")
        except CheckpointError as error:
            raise CheckpointError(f"{error} Give every process of a team the same model options") from None
        name = _PREFIX + pinned.ref.name
        published = (await self._engine.store.publish(name, weights)).ref
        kept = self._kept(name)
        self._numbers[name] = {digest: number for digest, number in self._numbers[name].items() if number in kept}
        self._numbers[name][pinned.digest] = published.version
        return published

    def _kept(self, name: str) -> set[int]:
        return {ref.version for ref in self._engine.store.versions(name)}


def _named(generation: Generation, ref: AdapterRef | None) -> Generation:
    return generation if ref is None else msgspec.structs.replace(generation, adapter=ref)
