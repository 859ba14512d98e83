"""What a trainer publishes to when the agents of its team generate in other processes."""

from collections.abc import Mapping, Sequence
from functools import partial

from mas.bus.envelopes import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.engine import AdapterRef, PinnedAdapter
from mas.core.errors import EngineError, RunError, UnknownAdapter
from mas.core.messages import Envelope
from mas.runtime.agents import CompletionScores, Fetch, Fetched, Score
from mas.runtime.remote import UntilThere, insist
from mas.serving.adapter_files import digest_of, to_files
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion
from mas.serving.store import AdapterStore
from mas.training.distributed import Elsewhere

_ENVELOPE = 4096
"""Bytes of a message that are not its payload, at most."""


class AgentsEngine(Elsewhere):
    """Satisfies `mas.serving.store.ServingEngine`, but generates nothing: the agents fetch what is published here, and
    score for its canary.

    Args:
        bus: where they are; envelopes: makes what is sent to them, as `principal`.
        speakers: adapter -> the address of an agent that speaks through it.
        until_there: as in `RemoteAgents`.
        max_bytes: of one payload on the bus.
        timeout_s: of one score; None: no limit.
    """

    reads_files = False

    def __init__(
        self,
        base: BaseModel,
        bus: Bus,
        *,
        envelopes: EnvelopeFactory,
        principal: str,
        speakers: Mapping[str, str],
        until_there: UntilThere,
        max_bytes: int,
        timeout_s: float | None,
    ) -> None:
        super().__init__(base)
        self.dtype = base.options.dtype
        self.origin = base.origin
        self.store = AdapterStore(self)
        self._bus, self._envelopes, self._principal = bus, envelopes, principal
        self._speakers, self._until_there = speakers, until_there
        self._max_bytes, self._timeout_s = max_bytes - _ENVELOPE, timeout_s
        self._files: dict[AdapterRef, tuple[PinnedAdapter, dict[str, bytes]]] = {}

    def adapters(self) -> Mapping[str, AdapterRef]:
        """What is published."""
        return self.store.current()

    def pinned(self, adapter: str) -> PinnedAdapter:
        """The version that a published name points to."""
        return self._files[self.store.current()[adapter]][0]

    async def load(self, version: AdapterVersion) -> None:
        """Have it ready for whoever fetches it.

        Raises:
            EngineError: no message can hold it.
        """
        files = to_files(version.weights, self.origin)
        size = sum(len(content) for content in files.values())
        if size > self._max_bytes:
            raise EngineError(
                f"adapter {version.ref} has {size:,} bytes, and a message on this bus holds {self._max_bytes:,}: "
                "give all processes the same --store, lower model.lora.rank, or train in one process"
            )
        self._files[version.ref] = PinnedAdapter(version.ref, digest_of(files)), files

    async def unload(self, version: AdapterVersion) -> None:
        """Nobody fetches it any more."""
        self._files.pop(version.ref, None)

    async def handle(self, envelope: Envelope) -> Fetched:
        """Answer one `Fetch`.

        Raises:
            UnknownAdapter: that version is not published now.
        """
        payload = envelope.payload
        if not isinstance(payload, Fetch):
            raise RunError(f"whoever trains was sent {envelope.kind!r}, it answers 'fetch'")
        pinned, files = self._files.get(payload.adapter.ref, (None, {}))
        if pinned != payload.adapter:
            published = [str(one) for one, _ in self._files.values()]
            raise UnknownAdapter(f"no adapter {payload.adapter} is published; published are: {published}")
        return Fetched(files=files)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        """As an agent scores that speaks through the adapter; the bare base as any of them does."""
        target = next(iter(self._speakers.values())) if version is None else self._speakers[version.ref.name]
        pinned = None if version is None else self._files[version.ref][0]
        score = Score(prompt_ids=tuple(prompt_ids), completion_ids=tuple(completion_ids), adapter=pinned)
        readers = frozenset((target, self._principal))

        async def request() -> Envelope:
            envelope = self._envelopes.new(target, score, visibility=readers)
            return await self._bus.request(envelope, timeout_s=self._timeout_s)

        answer = await insist(request, partial(self._until_there, target), lambda number, error: None)
        if not isinstance(answer.payload, CompletionScores):
            raise RunError(f"{target!r} answered {answer.kind!r} to 'score'")
        return answer.payload.logprobs

    async def close(self) -> None:
        """Forget what is published."""
        self.store.close()
