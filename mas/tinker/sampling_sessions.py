"""What clients sample with, by name: sampling sessions of the base, of saved weights, or of a model as it was."""

import asyncio
from dataclasses import dataclass

from tinker import types

from mas.core.errors import RefusedRequest
from mas.endpoint.errors import Refused
from mas.serving.adapter_weights import AdapterWeights
from mas.tinker.checkpoints import CheckpointFolder, CheckpointPath
from mas.tinker.futures import Futures
from mas.tinker.sampling import MOST_SAMPLES, Samplers, SamplingTarget
from mas.tinker.served_base import ServedBase
from mas.tinker.sessions import ClientSessions

MOST_SAMPLING_SESSIONS = 65_536


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
            return self._folder.load(path).weights

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
