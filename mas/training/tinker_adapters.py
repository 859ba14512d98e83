"""Training that changes adapters at a Tinker service, one training client each; no weights are loaded here.

A checkpoint holds the paths of two saves for each adapter, in `tinker.json`: its state, from which training goes on,
and what is sampled with, for those who play the trained team. Both stay at the service when a checkpoint is deleted.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tinker

from mas.algorithms.parts.experience.library import Library
from mas.algorithms.parts.rewards.interaction import paid_together
from mas.core.concurrency import finished, together
from mas.core.errors import CheckpointError
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.remote_tinker import TinkerEngine, service_errors
from mas.training.check_tinker import trained_layers
from mas.training.checkpoint import NO_FILES, Progress, save_checkpoint, verify_checkpoint
from mas.training.saved import TINKER_FILE, saved_at_tinker
from mas.training.session import TeamSession
from mas.training.setup import TrainSetup
from mas.training.stages import AdapterAssignment
from mas.training.tinker_learner import TinkerLearner
from mas.training.updates.policy_gradient import PolicyGradient
from mas.training.updates.update import UpdateResult

_SEEDS = 2**31


class TrainableAtTinker:
    """Satisfies `mas.training.trainable.Trainable`."""

    def __init__(self, setup: TrainSetup) -> None:
        self._setup = setup
        self.trained: Mapping[str, str] = setup.trained_adapters
        self.assignment = AdapterAssignment(setup.algorithm, self.trained)
        self._learner = TinkerLearner(setup.learner, setup.algorithm.loss, has_canary=setup.train.canary)
        own = None if setup.method is None else setup.method.advantages
        self._update = PolicyGradient(self._learner, setup.algorithm, own)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mas-tinker-learner")
        self._states: Mapping[str, str] = {}

    def assign_adapters(self, session: TeamSession, steps_done: int | None) -> Mapping[str, str]:
        """See `Trainable`; roles are evaluated with their own adapters."""
        if self.assignment.swaps:
            session.runtime.use_adapters(
                self.trained if steps_done is None else self.assignment.sampling_adapters(steps_done)
            )
        return self.trained if steps_done is None else self.assignment.trained_adapters(steps_done)

    @asynccontextmanager
    async def serving(self, session: TeamSession, versions: Mapping[str, int]) -> AsyncIterator[None]:
        """See `Trainable`; the service's session, with what is trained in it, ends with the engine."""
        engine = session.runtime.endpoint.engine
        assert isinstance(engine, TinkerEngine)
        self._learner.engine = engine
        names = list(versions)
        made = await together([engine.answered(partial(self._client, engine, name)) for name in names], "tinker-train")
        self._learner.clients = dict(zip(names, made, strict=True))
        await self._publish(versions)
        used = {role: name for role, name in self._setup.sampling_adapters.items() if name is not None}
        session.runtime.use_adapters(used)
        try:
            yield
        finally:
            self._thread.shutdown(wait=False)

    async def _client(self, engine: TinkerEngine, name: str) -> tinker.TrainingClient:
        """What trains an adapter: a new one, or one that goes on from the state of a checkpoint."""
        client: tinker.TrainingClient
        if name in self._states:
            client = await engine.service.create_training_client_from_state_with_optimizer(self._states[name])
            return client
        lora = self._setup.model.lora_of(name)
        layers = trained_layers(lora)
        client = await engine.service.create_lora_training_client(
            engine.model,
            rank=lora.rank,
            seed=derive_seed("adapter", self._setup.train.seed, name) % _SEEDS,
            train_attn=layers["train_attn"],
            train_mlp=layers["train_mlp"],
            train_unembed=False,
        )
        return client

    async def improve(
        self,
        session: TeamSession,
        episodes: Sequence[Episode],
        trained: Mapping[str, str],
        *,
        step: int,
        lr_scale: float,
    ) -> UpdateResult:
        """See `Trainable.improve`.

        Raises:
            TrainingError: the episodes were not drawn from the policy in training. EngineError: the service failed.
        """
        if self._setup.algorithm.reward.shared:
            episodes = paid_together(episodes)
        before = self._learner.updates
        work = partial(self._update.improve, episodes, trained, step=step, lr_scale=lr_scale)
        improved = await finished(self._thread, work)
        return replace(improved, optimiser_steps=self._learner.updates - before)

    async def publish(self, session: TeamSession, improved: UpdateResult) -> Mapping[str, Any]:
        """Sample with what was learned; that the service does so, the next step's data show."""
        await self._publish(dict.fromkeys(improved.learned))
        return {}

    async def _publish(self, versions: Mapping[str, int | None]) -> None:
        """All of them or none. None: as the next version."""
        engine, clients = self._learner.engine, self._learner.clients
        samplers = await together(
            [engine.answered(clients[name].save_weights_and_get_sampling_client) for name in versions], "tinker-publish"
        )
        for (name, version), sampler in zip(versions.items(), samplers, strict=True):
            engine.publish(name, sampler, version)

    def versions(self, session: TeamSession) -> Mapping[str, int]:
        """What the service is sampled with of what is trained."""
        served = self._learner.engine.adapters()
        return {name: served[name].version for name in self._learner.clients}

    def state(self) -> Mapping[str, Any]:
        """The update's."""
        return self._update.state()

    def save(self, directory: Path, progress: Progress, keep: int, more: Mapping[str, bytes] = NO_FILES) -> Path:
        """See `save_checkpoint`. Weights are saved by the service first."""
        places = self._thread.submit(self._saved, f"step-{progress.step:06d}").result()
        files = {**more, TINKER_FILE: json.dumps(places, indent=1).encode()}
        return save_checkpoint(directory, None, progress, keep, more=files)

    def _saved(self, name: str) -> dict[str, dict[str, str]]:
        """Adapter -> the paths of its saves."""
        engine = self._learner.engine
        with service_errors(engine.url):
            asked = {
                adapter: (client.save_state(name, overwrite=True), client.save_weights_for_sampler(name))
                for adapter, client in self._learner.clients.items()
            }
            return {
                adapter: {"state": state.result(engine.timeout_s).path, "sampler": own.result(engine.timeout_s).path}
                for adapter, (state, own) in asked.items()
            }

    def load(self, checkpoint: Path) -> Progress:
        """See `Trainable`; the states are loaded by the service when it is there."""
        progress = verify_checkpoint(checkpoint)
        self._states = saved_at_tinker(checkpoint, "state")
        if self._states.keys() != set(self.trained.values()):
            raise CheckpointError(
                f"checkpoint {checkpoint} holds adapters {sorted(self._states)}, the run has "
                f"{sorted(set(self.trained.values()))}"
            )
        self._update.restore(progress.update, {})
        return progress

    @property
    def adapters(self) -> Mapping[str, AdapterWeights]:
        """None: they are at the service."""
        return {}

    @property
    def libraries(self) -> Mapping[str, Library]:
        """None."""
        return {}
