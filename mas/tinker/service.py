"""What clients of the Tinker API have here: sessions, models in training, what is sampled with, and requests.

Everything that a session made ends with it, but for saved weights. Models compute in one thread, one request after the
other; the engine samples beside it.
"""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tinker import types

from mas.config.options import LearnerOptions, LoraOptions
from mas.core.concurrency import finished
from mas.core.errors import RefusedRequest
from mas.endpoint.errors import Refused
from mas.serving.transformers_engine import TransformersEngine
from mas.tinker.checkpoints import SAMPLER, TRAINING, CheckpointFolder, CheckpointPath
from mas.tinker.futures import Answer, Futures, OrderedTurns
from mas.tinker.sampling import Samplers, SamplingSession, SamplingTarget
from mas.tinker.wire import ForwardBackward, forward_backward_bytes
from mas.training.client_adapter import ClientAdapter, ClientStep

HIGHEST_RANK = 512
MOST_SESSIONS = 1024
MOST_SAMPLING_SESSIONS = 65_536
_MOST_WAITING = 512
"""Requests of one model that wait for their turn."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerLimits:
    """What one server takes on.

    Attributes:
        models: that are trained at the same time.
        samplers: sets of weights that are held for sampling.
        idle_s: a session without a sign of life for so many seconds ends.
    """

    models: int = 16
    samplers: int = 32
    idle_s: float = 600.0


@dataclass(slots=True, eq=False)
class ClientSession:
    """`seen`: when its client gave a sign of life, by the monotonic clock. `is_over`: it finished or was given up."""

    id: str
    seen: float
    metadata: Mapping[str, Any]
    is_over: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A model that a client trains. `inflight`: what its sampling clients of that kind share."""

    id: str
    owner: str
    adapter: ClientAdapter
    metadata: Mapping[str, Any] | None
    turns: OrderedTurns = field(default_factory=lambda: OrderedTurns(1))
    waiting: int = 0
    inflight: SamplingTarget | None = None


class TinkerService:
    """All that one server has.

    Args:
        engine: samples; the caller's to close.
        options: how much goes through the model at once.
        names: that clients may call the base by, the first as it is told to them.
    """

    def __init__(
        self,
        engine: TransformersEngine,
        options: LearnerOptions,
        folder: CheckpointFolder,
        limits: TinkerLimits,
        names: tuple[str, ...],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.base = engine.base
        self.names = names
        self.folder = folder
        self.futures = Futures()
        self.models: dict[str, TrainedModel] = {}
        self.sampling: dict[str, SamplingSession] = {}
        self.samplers = Samplers(engine, limits.samplers)
        self._options = options
        self._limits = limits
        self._now = now
        self._sessions: dict[str, ClientSession] = {}
        self._making = 0
        self._joined: dict[str, int] = {}
        self._thread = ThreadPoolExecutor(1, "mas-tinker")

    async def close(self) -> None:
        """End all requests and wait for what computes."""
        await self.futures.close()
        await asyncio.to_thread(self._thread.shutdown)

    def begin_session(self, request: types.CreateSessionRequest) -> str:
        """A new session; those whose clients are gone end first.

        Raises:
            Refused: there are too many.
        """
        self._end_idle()
        if len(self._sessions) >= MOST_SESSIONS:
            over = next((one for one in self._sessions.values() if one.is_over), None)
            if over is None:
                raise Refused(429, f"{MOST_SESSIONS} sessions are open here: come again later", code="busy")
            del self._sessions[over.id]
        session = ClientSession(secrets.token_hex(16), self._now(), request.user_metadata or {})
        self._sessions[session.id] = session
        return session.id

    def session(self, name: str) -> ClientSession:
        """An open session, whose client gives a sign of life now.

        Raises:
            Refused: status 404, there is none, or 410, it is over.
        """
        found = self._sessions.get(name)
        if found is None:
            raise Refused(404, f"no session {name[:80]!r} here: a server that was started again has none of before")
        if found.is_over:
            raise Refused(410, f"session {name} is over: make another ServiceClient")
        found.seen = self._now()
        return found

    def end_session(self, name: str) -> None:
        """Free all that a session has; saved weights stay. What is over already stays as it is."""
        session = self._sessions.get(name)
        if session is None or session.is_over:
            return
        session.is_over = True
        for model in [one for one in self.models.values() if one.owner == name]:
            self._unload(model, f"the session of model {model.id} is over")
        for sampling in [one for one in self.sampling.values() if one.owner == name]:
            self.samplers.drop(sampling.target)
            del self.sampling[sampling.id]
            self._joined.pop(sampling.id, None)

    def _end_idle(self) -> None:
        for session in [*self._sessions.values()]:
            if self._now() - session.seen > self._limits.idle_s:
                self.end_session(session.id)

    def check_base(self, name: str | None) -> None:
        """Refuse another base than the one here; None is this one.

        Raises:
            RefusedRequest: it is another one.
        """
        if name is not None and name not in self.names:
            raise RefusedRequest(
                f"no base model {name[:200]!r} here; this server has {' or '.join(map(repr, self.names))}"
            )

    def create_model(self, request: types.CreateModelRequest, body: bytes) -> str:
        """A new adapter; the key of the request."""
        session = self.session(request.session_id)
        name = f"{session.id}:train:{request.model_seq_id}"

        async def work() -> Answer:
            self.check_base(request.base_model)
            check_optimiser(request.optimizer_config)
            lora = self._lora(request.lora_config or types.LoraConfig(rank=self.base.options.lora.rank))
            given = request.lora_config.seed if request.lora_config is not None else None
            seed = secrets.randbits(62) if given is None else given % 2**63
            make = partial(self.base.bank.create, lora, seed)
            await self._add(
                name, session, lambda: ClientAdapter(self.base, make(), self._options), request.user_metadata
            )
            return {"type": "create_model", "model_id": name}

        return self.futures.begin(f"{name}:create", body, work)

    def _lora(self, wanted: types.LoraConfig) -> LoraOptions:
        if not 1 <= wanted.rank <= HIGHEST_RANK:
            raise RefusedRequest(f"rank is {wanted.rank}; 1 to {HIGHEST_RANK} are possible")
        layers = {name.rpartition(".")[2]: ".mlp." in f".{name}." for name in self.base.bank.shapes}
        targets = tuple(
            sorted(last for last, is_mlp in layers.items() if (wanted.train_mlp if is_mlp else wanted.train_attn))
        )
        if not targets:
            raise RefusedRequest(
                "this server trains attention and MLP layers, and the client wants neither: set train_attn or train_mlp"
            )
        return LoraOptions(rank=wanted.rank, alpha=self.base.options.lora.alpha, targets=targets)

    async def _add(
        self, name: str, session: ClientSession, make: Callable[[], ClientAdapter], metadata: Mapping[str, Any] | None
    ) -> None:
        """A model that is made in the thread."""
        self._end_idle()
        if len(self.models) + self._making >= self._limits.models:
            raise RefusedRequest(
                f"{len(self.models)} models are trained here, and no more are possible (--models): unload one, or end "
                "a session"
            )
        if name in self.models:
            raise RefusedRequest(f"model {name} exists")
        self._making += 1
        try:
            adapter = await finished(self._thread, make)
        finally:
            self._making -= 1
        if session.is_over:
            raise RefusedRequest(f"session {session.id} is over")
        self.models[name] = TrainedModel(id=name, owner=session.id, adapter=adapter, metadata=metadata)

    def model(self, name: str) -> TrainedModel:
        """A model that is trained here.

        Raises:
            Refused: status 404, there is none.
        """
        found = self.models.get(name)
        if found is None:
            raise Refused(404, f"no model {name[:200]!r} is trained here (any more)", code="model_not_found")
        return found

    def unload(self, name: str, body: bytes) -> str:
        """Free a model."""
        if name in self.models:
            self._unload(self.models[name], f"model {name} was unloaded")

        async def work() -> Answer:
            return {"type": "unload_model", "model_id": name}

        return self.futures.begin(f"{name}:unload", body, work)

    def _unload(self, model: TrainedModel, why: str) -> None:
        model.turns.close(why)
        self.models.pop(model.id, None)

    def in_turn(
        self, name: str, number: int | None, body: bytes, work: Callable[[TrainedModel], Awaitable[Answer]]
    ) -> str:
        """A request of a model, carried out when all with lower numbers were.

        Raises:
            Refused: there is no such model, or no number, or too many wait.
        """
        model = self.model(name)
        self.session(model.owner)
        if number is None or number < 1:
            raise Refused(400, "seq_id is missing: requests of a model are numbered from 1", param="seq_id")
        if model.waiting >= _MOST_WAITING:
            raise Refused(429, f"{model.waiting} requests of this model wait: come again later", code="busy")

        async def turn() -> Answer:
            model.waiting += 1
            try:
                await model.turns.begin(number)
                try:
                    return await work(model)
                finally:
                    model.turns.end()
            finally:
                model.waiting -= 1

        return self.futures.begin(f"{name}:{number}", body, turn)

    def refuse(self, body: bytes, error: Refused) -> str:
        """A request that cannot be read fails in its turn, if it can be seen whose it is: those after it would wait for
        it for ever.

        Raises:
            Refused: `error`, where it cannot.
        """
        try:
            given = json.loads(body)
        except (ValueError, RecursionError):
            raise error from None
        name, number = (given.get("model_id"), given.get("seq_id")) if isinstance(given, dict) else (None, None)
        if not isinstance(name, str) or name not in self.models or not isinstance(number, int):
            raise error

        async def work(model: TrainedModel) -> Answer:
            raise error

        return self.in_turn(name, number, body, work)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """What a model computes."""
        return await finished(self._thread, work)

    def forward_backward(self, request: ForwardBackward, body: bytes) -> str:
        """Its data are read in the thread, since there may be much."""
        message = request.message

        async def work(model: TrainedModel) -> Answer:
            def compute() -> bytes:
                output = model.adapter.compute(
                    request.data, message.loss_fn, request.config, backward=not message.forward_only
                )
                return forward_backward_bytes(output)

            return await self.in_thread(compute)

        return self.in_turn(message.model_id, message.seq_id, body, work)

    def optim_step(self, request: types.OptimStepRequest, body: bytes) -> str:
        """A step of AdamW."""
        params = request.optim_params

        async def work(model: TrainedModel) -> Answer:
            if not isinstance(params, types.AdamParams):
                raise RefusedRequest(f"models here are trained by AdamW, not by {params.type!r}: send AdamParams")
            step = ClientStep(
                lr=params.learning_rate,
                beta1=params.beta1,
                beta2=params.beta2,
                eps=params.eps,
                weight_decay=params.weight_decay,
                clip_norm=max(params.grad_clip_norm, 0.0),
            )
            norm = await self.in_thread(partial(model.adapter.step, step))
            return {"type": "optim_step", "metrics": {"grad_norm": norm}}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    def save_weights(self, request: types.SaveWeightsRequest, body: bytes) -> str:
        """With the state of the optimiser."""

        async def work(model: TrainedModel) -> Answer:
            name = f"{request.seq_id:06d}" if request.path is None else request.path
            path = CheckpointPath.read(f"tinker://{model.id}/{TRAINING}/{name}")
            await self.in_thread(
                lambda: self.folder.save(
                    path,
                    model.adapter,
                    ttl_s=request.ttl_seconds,
                    overwrite=request.overwrite,
                    metadata=request.user_metadata,
                )
            )
            return {"type": "save_weights", "path": str(path)}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    def load_weights(self, request: types.LoadWeightsRequest, body: bytes) -> str:
        """Into a model, or into a new one of a session."""
        if request.session_id is None:
            return self.in_turn(request.model_id or "", request.seq_id, body, partial(self._load_into, request))
        session = self.session(request.session_id)
        name = f"{session.id}:train:{request.model_seq_id}"

        async def work() -> Answer:
            self.check_base(request.base_model)
            if request.optimizer_config is not None:
                check_optimiser(request.optimizer_config)
            path = CheckpointPath.read(request.path)

            def make() -> ClientAdapter:
                saved = self.folder.load(path, optimiser=request.optimizer)
                adapter = ClientAdapter(self.base, saved.weights, self._options)
                adapter.restore(saved.weights, saved.optimiser)
                return adapter

            await self._add(name, session, make, request.user_metadata)
            return {"type": "load_weights", "path": request.path, "model_id": name}

        return self.futures.begin(f"{name}:0", body, work)

    async def _load_into(self, request: types.LoadWeightsRequest, model: TrainedModel) -> Answer:
        path = CheckpointPath.read(request.path)

        def load() -> None:
            saved = self.folder.load(path, optimiser=request.optimizer)
            model.adapter.restore(saved.weights, saved.optimiser)

        await self.in_thread(load)
        return {"type": "load_weights", "path": request.path, "model_id": model.id}

    def save_for_sampler(self, request: types.SaveWeightsForSamplerRequest, body: bytes) -> str:
        """Under a name, or as a new sampling session that holds them."""

        async def work(model: TrainedModel) -> Answer:
            if request.path is not None:
                path = CheckpointPath.read(f"tinker://{model.id}/{SAMPLER}/{request.path}")
                await self.in_thread(
                    lambda: self.folder.save(
                        path,
                        model.adapter,
                        ttl_s=request.ttl_seconds,
                        overwrite=False,
                        metadata=request.user_metadata,
                    )
                )
                return {"type": "save_weights_for_sampler", "path": str(path)}
            if request.sampling_session_seq_id is None:
                raise RefusedRequest(
                    "neither path nor sampling_session_seq_id: what the weights are saved as is missing"
                )
            weights = await self.in_thread(model.adapter.weights.snapshot)
            target = SamplingTarget()
            if request.kind == "inflight":
                target = model.inflight = model.inflight or target
            name = f"{model.owner}:sample:{request.sampling_session_seq_id}"
            self._add_sampling(SamplingSession(id=name, owner=model.owner, target=target))
            self.samplers.hold(target, weights)
            return {"type": "save_weights_for_sampler", "sampling_session_id": name}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    async def create_sampling(self, request: types.CreateSamplingSessionRequest) -> str:
        """A sampling session of the base or of saved weights; the same again where its client sends the request again.

        Raises:
            Refused, RefusedRequest: there is no such session, base or path; see `CheckpointFolder.load`.
        """
        session = self.session(request.session_id)
        name = f"{session.id}:sample:{request.sampling_session_seq_id}"
        self.check_base(request.base_model)
        if (known := self.sampling.get(name)) is not None:
            if known.path != request.model_path:
                raise Refused(400, f"sampling session {name} was made of something else")
            return name
        if request.model_path is None:
            if request.base_model is None:
                raise RefusedRequest("neither model_path nor base_model: what is sampled from is missing")
            self._add_sampling(SamplingSession(id=name, owner=session.id, target=SamplingTarget(is_base=True)))
            return name
        path = CheckpointPath.read(request.model_path)
        weights = (await self.in_thread(lambda: self.folder.load(path))).weights
        target = SamplingTarget(load=lambda: self.folder.load(path).weights)
        self.session(session.id)
        self._add_sampling(SamplingSession(id=name, owner=session.id, target=target, path=request.model_path))
        self.samplers.hold(target, weights)
        return name

    def _add_sampling(self, sampling: SamplingSession) -> None:
        if len(self.sampling) >= MOST_SAMPLING_SESSIONS:
            raise RefusedRequest(f"{MOST_SAMPLING_SESSIONS} sampling sessions are open here: end a session")
        self.sampling[sampling.id] = sampling

    def sampler(self, name: str) -> SamplingSession:
        """Raises Refused, status 404, where there is none."""
        found = self.sampling.get(name)
        if found is None:
            raise Refused(404, f"no sampling session {name[:200]!r} is open here (any more)")
        return found

    def join_sampling(self, name: str) -> int:
        """A number for another client of a sampling session; the first client has 0."""
        self.sampler(name)
        self._joined[name] = self._joined.get(name, 0) + 1
        return self._joined[name]

    def sample(self, request: types.SampleRequest, body: bytes) -> tuple[str, list[str]]:
        """The key of the request, and a name for each completion.

        Raises:
            Refused: it names no sampling session, or is not numbered.
        """
        if request.sampling_session_id is None or request.seq_id is None:
            raise Refused(400, "sampling_session_id and seq_id are needed", param="sampling_session_id")
        sampling = self.sampler(request.sampling_session_id)
        self.session(sampling.owner)
        key = f"{sampling.id}:{request.seq_id}"
        self.futures.begin(key, body, lambda: self.samplers.sample(sampling.target, request))
        return key, [f"{key}:{index}" for index in range(max(min(request.num_samples, 1024), 0))]


def check_optimiser(config: Any) -> None:
    """Refuse another optimiser than AdamW.

    Raises:
        RefusedRequest: it is another one.
    """
    if config.type != "adamw":
        raise RefusedRequest(f"models here are trained by AdamW, not by {config.type!r}: leave optimizer out")
