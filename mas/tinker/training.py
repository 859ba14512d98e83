"""Models that clients train here: each request of a model is carried out in its turn, in the thread of the base.

A request that is refused has its turn, too, as long as it can be seen whose it is: those after it would wait for it for
ever. What is refused drops the gradient that the step would have been made with (`ClientAdapter.drop`).
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tinker import types

from mas.config.options import LearnerOptions, LoraOptions
from mas.core.errors import RefusedRequest
from mas.endpoint.errors import Refused
from mas.tinker.checkpoints import SAMPLER, TRAINING, CheckpointFolder, CheckpointPath
from mas.tinker.futures import Answer, Futures, OrderedTurns
from mas.tinker.sampling import SamplingSession, SamplingSessions, SamplingTarget
from mas.tinker.served_base import ServedBase
from mas.tinker.sessions import ClientSession, ClientSessions
from mas.tinker.wire import ForwardBackward, forward_backward_bytes, owner_of
from mas.training.client_adapter import ClientAdapter, ClientStep

HIGHEST_RANK = 512
_MOST_WAITING = 512
"""Requests of one model that wait for their turn."""


@dataclass(slots=True, kw_only=True, eq=False)
class TrainedModel:
    """A model that a client trains. `pending`: the numbers of requests without an answer. `inflight`: what its sampling
    clients of that kind share."""

    id: str
    owner: str
    adapter: ClientAdapter
    metadata: Mapping[str, Any] | None
    turns: OrderedTurns = field(default_factory=lambda: OrderedTurns(1))
    pending: set[int] = field(default_factory=set)
    inflight: SamplingTarget | None = None


class TrainedModels:
    """All models of a server.

    Args:
        options: how much goes through the model at once.
        most: models that are trained at the same time.
    """

    def __init__(
        self,
        base: ServedBase,
        folder: CheckpointFolder,
        sampling: SamplingSessions,
        sessions: ClientSessions,
        futures: Futures,
        *,
        options: LearnerOptions,
        most: int,
    ) -> None:
        self.models: dict[str, TrainedModel] = {}
        self._base, self._folder, self._sampling = base, folder, sampling
        self._sessions, self._futures = sessions, futures
        self._options, self._most = options, most
        self._making = 0

    def create(self, request: types.CreateModelRequest, body: bytes) -> str:
        """A new adapter; the key of the request."""
        session = self._sessions.open(request.session_id)
        name = f"{session.id}:train:{request.model_seq_id}"

        async def work() -> Answer:
            self._base.check(request.base_model)
            check_optimiser(request.optimizer_config)
            lora = self._lora(request.lora_config or types.LoraConfig(rank=self._base.model.options.lora.rank))
            given = request.lora_config.seed if request.lora_config is not None else None
            seed = secrets.randbits(62) if given is None else given % 2**63
            make = partial(self._base.model.bank.create, lora, seed)
            await self._add(
                name, session, lambda: ClientAdapter(self._base.model, make(), self._options), request.user_metadata
            )
            return {"type": "create_model", "model_id": name}

        return self._futures.begin(f"{name}:create", body, work)

    def _lora(self, wanted: types.LoraConfig) -> LoraOptions:
        if not 1 <= wanted.rank <= HIGHEST_RANK:
            raise RefusedRequest(f"rank is {wanted.rank}; 1 to {HIGHEST_RANK} are possible")
        layers = {name.rpartition(".")[2]: ".mlp." in f".{name}." for name in self._base.model.bank.shapes}
        targets = tuple(
            sorted(last for last, is_mlp in layers.items() if (wanted.train_mlp if is_mlp else wanted.train_attn))
        )
        if not targets:
            raise RefusedRequest(
                "this server trains attention and MLP layers, and the client wants neither: set train_attn or train_mlp"
            )
        return LoraOptions(rank=wanted.rank, alpha=self._base.model.options.lora.alpha, targets=targets)

    async def _add(
        self, name: str, session: ClientSession, make: Callable[[], ClientAdapter], metadata: Mapping[str, Any] | None
    ) -> None:
        """A model that is made in the thread."""
        self._sessions.end_idle()
        if len(self.models) + self._making >= self._most:
            raise RefusedRequest(
                f"{len(self.models)} models are trained here, and no more are possible (--models): unload one, or end "
                "a session"
            )
        if name in self.models:
            raise RefusedRequest(f"model {name} exists")
        self._making += 1
        try:
            adapter = await self._base.in_thread(make)
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

        return self._futures.begin(f"{name}:unload", body, work)

    def _unload(self, model: TrainedModel, why: str) -> None:
        model.turns.close(why)
        self.models.pop(model.id, None)

    def in_turn(
        self, name: str, number: int | None, body: bytes, work: Callable[[TrainedModel], Awaitable[Answer]]
    ) -> str:
        """A request of a model, carried out when all with lower numbers were. The next one is let in however many wait:
        they wait for it.

        Raises:
            Refused: there is no such model, or no number, or too many wait.
        """
        model = self.model(name)
        self._sessions.open(model.owner)
        if number is None or number < 1:
            raise Refused(400, "seq_id is missing: requests of a model are numbered from 1", param="seq_id")
        is_next, is_new = number == model.turns.next, number >= model.turns.next and number not in model.pending
        if is_new and not is_next and len(model.pending) >= _MOST_WAITING:
            raise Refused(429, f"{len(model.pending)} requests of this model wait: come again later", code="busy")

        async def turn() -> Answer:
            try:
                await model.turns.begin(number)
                try:
                    return await work(model)
                finally:
                    model.turns.end()
            finally:
                model.pending.discard(number)

        key = self._futures.begin(f"{name}:{number}", body, turn, is_awaited=is_next)
        if is_new:
            model.pending.add(number)
        return key

    def refuse(self, body: bytes, error: Refused, drop: Callable[[ClientAdapter], None] | None = None) -> str:
        """A request that cannot be read fails in its turn.

        Args:
            body: its beginning is enough. drop: what becomes of the gradient then; None: it stays.

        Raises:
            Refused: `error`, where it cannot be seen whose request it is.
        """
        owner = owner_of(body)
        if owner is None or owner[0] not in self.models:
            raise error

        async def work(model: TrainedModel) -> Answer:
            if drop is not None:
                drop(model.adapter)
            raise error

        return self.in_turn(*owner, body, work)

    def forward_backward(self, request: ForwardBackward, body: bytes) -> str:
        """Its data are read in the thread, since there may be much."""
        message = request.message

        async def work(model: TrainedModel) -> Answer:
            def compute() -> bytes:
                output = model.adapter.compute(
                    request.data, message.loss_fn, request.config, backward=not message.forward_only
                )
                return forward_backward_bytes(output)

            return await self._base.in_thread(compute)

        return self.in_turn(message.model_id, message.seq_id, body, work)

    def optim_step(self, request: types.OptimStepRequest, body: bytes) -> str:
        """A step of AdamW."""
        params = request.optim_params

        async def work(model: TrainedModel) -> Answer:
            if not isinstance(params, types.AdamParams):
                model.adapter.drop()
                raise RefusedRequest(f"models here are trained by AdamW, not by {params.type!r}: send AdamParams")
            step = ClientStep(
                lr=params.learning_rate,
                beta1=params.beta1,
                beta2=params.beta2,
                eps=params.eps,
                weight_decay=params.weight_decay,
                clip_norm=max(params.grad_clip_norm, 0.0),
            )
            norm = await self._base.in_thread(partial(model.adapter.step, step))
            return {"type": "optim_step", "metrics": {"grad_norm": norm}}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    def save_weights(self, request: types.SaveWeightsRequest, body: bytes) -> str:
        """With the state of the optimiser."""

        async def work(model: TrainedModel) -> Answer:
            name = f"{request.seq_id:06d}" if request.path is None else request.path
            path = await self._save(model, TRAINING, name, request, overwrite=request.overwrite)
            return {"type": "save_weights", "path": path}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    async def _save(
        self,
        model: TrainedModel,
        kind: str,
        name: str,
        request: types.SaveWeightsRequest | types.SaveWeightsForSamplerRequest,
        *,
        overwrite: bool,
    ) -> str:
        path = CheckpointPath.read(f"tinker://{model.id}/{kind}/{name}")
        save = partial(self._folder.save, path, model.adapter, overwrite=overwrite)
        await self._base.in_thread(lambda: save(ttl_s=request.ttl_seconds, metadata=request.user_metadata))
        return str(path)

    def load_weights(self, request: types.LoadWeightsRequest, body: bytes) -> str:
        """Into a model, or into a new one of a session."""
        if request.session_id is None:
            return self.in_turn(request.model_id or "", request.seq_id, body, partial(self._load_into, request))
        session = self._sessions.open(request.session_id)
        name = f"{session.id}:train:{request.model_seq_id}"

        async def work() -> Answer:
            self._base.check(request.base_model)
            if request.optimizer_config is not None:
                check_optimiser(request.optimizer_config)
            path = CheckpointPath.read(request.path)

            def make() -> ClientAdapter:
                weights, optimiser = self._folder.load(path, optimiser=request.optimizer)
                adapter = ClientAdapter(self._base.model, weights, self._options)
                adapter.restore(weights, optimiser)
                return adapter

            await self._add(name, session, make, request.user_metadata)
            return {"type": "load_weights", "path": request.path, "model_id": name}

        return self._futures.begin(f"{name}:0", body, work)

    async def _load_into(self, request: types.LoadWeightsRequest, model: TrainedModel) -> Answer:
        path = CheckpointPath.read(request.path)

        def load() -> None:
            model.adapter.restore(*self._folder.load(path, optimiser=request.optimizer))

        await self._base.in_thread(load)
        return {"type": "load_weights", "path": request.path, "model_id": model.id}

    def save_for_sampler(self, request: types.SaveWeightsForSamplerRequest, body: bytes) -> str:
        """Under a name, or as a new sampling session that holds them."""

        async def work(model: TrainedModel) -> Answer:
            if request.path is not None:
                path = await self._save(model, SAMPLER, request.path, request, overwrite=False)
                return {"type": "save_weights_for_sampler", "path": path}
            if request.sampling_session_seq_id is None:
                raise RefusedRequest(
                    "neither path nor sampling_session_seq_id: what the weights are saved as is missing"
                )
            weights = await self._base.in_thread(model.adapter.weights.snapshot)
            target = SamplingTarget()
            if request.kind == "inflight":
                target = model.inflight = model.inflight or target
            name = f"{model.owner}:sample:{request.sampling_session_seq_id}"
            await self._sampling.hold(SamplingSession(id=name, owner=model.owner, target=target), weights)
            return {"type": "save_weights_for_sampler", "sampling_session_id": name}

        return self.in_turn(request.model_id, request.seq_id, body, work)

    def free(self, owner: str) -> None:
        """End those of a session."""
        for model in [one for one in self.models.values() if one.owner == owner]:
            self._unload(model, f"the session of model {model.id} is over")


def check_optimiser(config: Any) -> None:
    """Refuse another optimiser than AdamW.

    Raises:
        RefusedRequest: it is another one.
    """
    if config.type != "adamw":
        raise RefusedRequest(f"models here are trained by AdamW, not by {config.type!r}: leave optimizer out")
