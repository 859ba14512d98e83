"""What clients sample with, by name: sampling sessions of the base, of saved weights, or of a model as it was; and how
a request is answered.

Weights that were saved under a name are read again when they are needed; of others the server keeps those used last.
"""

import asyncio
import itertools
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
from tinker import types

from mas.core.concurrency import finished
from mas.core.engine import AdapterRef, Generation, Request, Sampling
from mas.core.errors import RefusedRequest
from mas.core.seeds import derive_seed
from mas.endpoint.errors import Refused
from mas.endpoint.stop_finder import StopFinder
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.detokenizer import Detokenizer
from mas.serving.publication import AdapterVersion, check_version
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.checkpoints import CheckpointFolder, CheckpointPath
from mas.tinker.futures import Futures
from mas.tinker.served_base import ServedBase
from mas.tinker.sessions import ClientSessions
from mas.tinker.wire import Alternatives, prompt_ids, sample_bytes

MOST_SAMPLES = 1024
"""Of one request."""
MOST_SAMPLING_SESSIONS = 65_536
_UNSUPPORTED = ("target_prompt_logprobs", "prompt_alt_tokens_k", "record_stability_info")


@dataclass(slots=True, eq=False)
class SamplingTarget:
    """What sampling sessions use. `load`: reads the weights again; None: nobody can. `is_base`: there are none.
    `loading`: held while they are read."""

    version: AdapterVersion | None = None
    load: Callable[[], AdapterWeights] | None = None
    is_base: bool = False
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)


class Samplers:
    """The weights that are sampled with. Files are read, weights checked and texts made in a thread of its own.

    Args:
        most: how many sets of weights are held at the same time.
    """

    def __init__(self, engine: TransformersEngine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._held: OrderedDict[SamplingTarget, None] = OrderedDict()
        self._numbers = itertools.count(1)
        self._thread = ThreadPoolExecutor(1, "mas-tinker-text")

    async def close(self) -> None:
        """Wait for what is read."""
        await asyncio.to_thread(self._thread.shutdown)

    async def hold(self, target: SamplingTarget, weights: AdapterWeights) -> None:
        """Give weights, which do not change any more, to a target; the one that was not used for longest may lose its
        own.

        Raises:
            EngineError: they hold a number that is none, which would break the batches that they are used in.
        """
        number = next(self._numbers)
        version = AdapterVersion(AdapterRef("tinker", number), number, weights, None)
        await finished(self._thread, lambda: check_version(self._engine.base.bank, version))
        self.drop(target)
        target.version = version
        self._held[target] = None
        while len(self._held) > self._most:
            self.drop(next(iter(self._held)))

    def drop(self, target: SamplingTarget) -> None:
        """Free a target's weights."""
        if target.version is not None:
            self._engine.base.bank.forget(target.version.weights)
        target.version = None
        self._held.pop(target, None)

    async def version(self, target: SamplingTarget) -> AdapterVersion | None:
        """What the engine samples with, None: the base.

        Raises:
            RefusedRequest: the weights were dropped, and nobody saved them. As `target.load`.
        """
        if target.is_base:
            return None
        async with target.loading:
            if target.version is None:
                if target.load is None:
                    raise RefusedRequest(
                        f"the weights of this sampling client were dropped, since {self._most} others were used after "
                        "them: save weights that stay in use under a name (save_weights_for_sampler), or start with "
                        "--samplers"
                    )
                await self.hold(target, await finished(self._thread, target.load))
            if target in self._held:
                self._held.move_to_end(target)
            return target.version

    async def sample(self, target: SamplingTarget, request: types.SampleRequest) -> bytes:
        """The answer as protocol buffers.

        Raises:
            RefusedRequest: the request cannot be served. EngineError: as the engine.
        """
        for name in _UNSUPPORTED:
            if getattr(request, name):
                raise RefusedRequest(f"{name} is not offered here: leave it out")
        if not 1 <= request.num_samples <= MOST_SAMPLES:
            raise RefusedRequest(f"num_samples is {request.num_samples}; 1 to {MOST_SAMPLES} are possible")
        prompt, version = prompt_ids(request.prompt), await self.version(target)
        stops, sampling = await finished(self._thread, lambda: self._sampling(request, len(prompt)))
        seed = secrets.randbits(62) if request.sampling_params.seed is None else request.sampling_params.seed
        asked = Request(
            prompt_ids=prompt,
            sampling=sampling,
            seeds=tuple(derive_seed("tinker", seed, index) for index in range(request.num_samples)),
        )
        self._engine.base.limits.check_request(asked)
        scored = await self._prompt(version, prompt, request)
        drawn = await self._engine.generate_version(version, asked)

        def answer() -> bytes:
            cut = [self._cut(one, stops) for one in drawn] if stops else drawn
            return sample_bytes(cut, *scored, request.topk_sample_logprobs)

        return await finished(self._thread, answer)

    def _sampling(self, request: types.SampleRequest, prompt: int) -> tuple[Sequence[str], Sampling]:
        """The texts that end a completion, and all else. An end of the base's own ends it, too, but with `stop=[]`."""
        params, engine = request.sampling_params, self._engine
        given = [params.stop] if isinstance(params.stop, str) else list(params.stop or ())
        texts = [one for one in given if isinstance(one, str)]
        if "" in texts:
            raise RefusedRequest("a stop sequence is empty: every text would end before its first token")
        ends = () if params.stop is not None and not given else engine.stop_ids
        ids = [one for one in given if isinstance(one, int)]
        ids += [own[0] for own in map(engine.tokenizer.encode, texts) if len(own) == 1]
        room = engine.base.limits.context - prompt
        return texts, Sampling(
            temperature=params.temperature,
            max_tokens=max(room, 1) if params.max_tokens is None else params.max_tokens,
            stop=tuple(dict.fromkeys([*ends, *ids])),
            top_k=0 if params.top_k == -1 else params.top_k,
            top_p=params.top_p,
            alternatives=request.topk_sample_logprobs,
        )

    def _cut(self, one: Generation, stops: Sequence[str]) -> Generation:
        """A completion up to the token that completes a stop sequence."""
        reader, finder = Detokenizer(self._engine.tokenizer.decode), StopFinder(stops)
        for count, token in enumerate(one.token_ids, 1):
            if finder.add(reader.add(token))[1] is not None:
                return msgspec.structs.replace(
                    one,
                    token_ids=one.token_ids[:count],
                    logprobs=one.logprobs[:count],
                    alternatives=one.alternatives[:count],
                    finish="stop",
                )
        return one

    async def _prompt(
        self, version: AdapterVersion | None, prompt: tuple[int, ...], request: types.SampleRequest
    ) -> tuple[Sequence[float | None] | None, Alternatives | None]:
        """Log-probabilities (temperature 1) and the most likely tokens at all or the last tokens of the prompt."""
        last, topk = request.prompt_logprobs_last_n, request.topk_prompt_logprobs
        if not request.prompt_logprobs and not topk:
            return None, None
        if last is not None and not 1 <= last < len(prompt):
            raise RefusedRequest(f"prompt_logprobs_last_n is {last}; 1 to {len(prompt) - 1} are possible here")
        begin = 1 if last is None else len(prompt) - last
        logprobs: list[float | None] = [None] * min(begin, len(prompt))
        alternatives: list[Sequence[tuple[int, float]]] = [()] * min(begin, len(prompt))
        if begin < len(prompt):
            scores = await self._engine.version_scores(version, prompt[:begin], prompt[begin:], topk)
            logprobs += scores.logprobs
            alternatives += scores.alternatives
        return logprobs if request.prompt_logprobs else None, alternatives if topk else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplingSession:
    """`path`: of the saved weights that it was made from, None: of none. `owner`: the client's session."""

    id: str
    owner: str
    target: SamplingTarget
    path: str | None = None


class SamplingSessions:
    """All sampling sessions of a server."""

    def __init__(
        self,
        base: ServedBase,
        folder: CheckpointFolder,
        samplers: Samplers,
        sessions: ClientSessions,
        futures: Futures,
    ) -> None:
        self.samplers = samplers
        self._base, self._folder, self._sessions, self._futures = base, folder, sessions, futures
        self._open: dict[str, SamplingSession] = {}
        self._joined: dict[str, int] = {}
        self._loading = asyncio.Lock()

    async def create(self, request: types.CreateSamplingSessionRequest) -> str:
        """A sampling session of the base or of saved weights; the same again where its client sends the request again.

        Raises:
            Refused, RefusedRequest: there is no such session, base or path; see `CheckpointFolder.load`.
        """
        session = self._sessions.open(request.session_id)
        name = f"{session.id}:sample:{request.sampling_session_seq_id}"
        self._base.check(request.base_model)
        if request.model_path is None:
            if request.base_model is None:
                raise RefusedRequest("neither model_path nor base_model: what is sampled from is missing")
            if not self._is_open(name, None):
                self._add(SamplingSession(id=name, owner=session.id, target=SamplingTarget(is_base=True)))
            return name
        path = CheckpointPath.read(request.model_path)

        def load() -> AdapterWeights:
            return self._folder.load(path)[0]

        sampling = SamplingSession(id=name, owner=session.id, target=SamplingTarget(load=load), path=request.model_path)
        async with self._loading:  # a request that is sent again meanwhile loads nothing
            if not self._is_open(name, request.model_path):
                await self.hold(sampling, await self._base.in_thread(load))
        return name

    def _is_open(self, name: str, path: str | None) -> bool:
        """Whether there is this sampling session of the base (no path) or of saved weights.

        Raises:
            Refused: it was made of something else.
        """
        known = self._open.get(name)
        if known is not None and (known.path, known.target.is_base) != (path, path is None):
            raise Refused(400, f"sampling session {name} was made of something else: give each a number of its own")
        return known is not None

    async def hold(self, sampling: SamplingSession, weights: AdapterWeights) -> None:
        """Open a sampling session that begins with weights, which do not change any more.

        Raises:
            RefusedRequest: too many are open, or there is one of this name. Refused: the client's session is over.
            EngineError: see `Samplers.hold`.
        """
        if sampling.id in self._open:
            raise RefusedRequest(f"sampling session {sampling.id} is open already: give each a number of its own")
        self._check_room()
        await self.samplers.hold(sampling.target, weights)
        try:
            self._sessions.open(sampling.owner)
        except Refused:
            self.samplers.drop(sampling.target)
            raise
        self._add(sampling)

    def _check_room(self) -> None:
        if len(self._open) >= MOST_SAMPLING_SESSIONS:
            raise RefusedRequest(f"{MOST_SAMPLING_SESSIONS} sampling sessions are open here: end a session")

    def _add(self, sampling: SamplingSession) -> None:
        self._check_room()
        self._open[sampling.id] = sampling

    def get(self, name: str) -> SamplingSession:
        """Raises Refused, status 404, where there is none."""
        found = self._open.get(name)
        if found is None:
            raise Refused(404, f"no sampling session {name[:200]!r} is open here (any more)")
        return found

    def join(self, name: str) -> int:
        """A number for another client of a sampling session; the first client has 0."""
        self.get(name)
        self._joined[name] = self._joined.get(name, 0) + 1
        return self._joined[name]

    def sample(self, request: types.SampleRequest, body: bytes) -> tuple[str, list[str]]:
        """The key of the request, and a name for each completion.

        Raises:
            Refused: it names no sampling session, or is not numbered.
        """
        if request.sampling_session_id is None or request.seq_id is None:
            raise Refused(400, "sampling_session_id and seq_id are needed", param="sampling_session_id")
        sampling = self.get(request.sampling_session_id)
        self._sessions.open(sampling.owner)
        key = f"{sampling.id}:{request.seq_id}"
        self._futures.begin(key, body, lambda: self.samplers.sample(sampling.target, request))
        return key, [f"{key}:{index}" for index in range(max(min(request.num_samples, MOST_SAMPLES), 0))]

    def free(self, owner: str) -> None:
        """End those of a session."""
        for sampling in [one for one in self._open.values() if one.owner == owner]:
            self.samplers.drop(sampling.target)
            del self._open[sampling.id]
            self._joined.pop(sampling.id, None)
