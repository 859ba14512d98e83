"""Training that changes adapters at a Tinker service, one training client each: data go there, weights stay there.

The loss is the service's own with the gradient of the algorithm's (`mas.training.check_tinker`); what it computes of
the data comes back as log-probabilities, of which the metrics are made as of the learner here. There is no entropy.
Before a step is made of a gradient, the log-probabilities that the data were sampled with are compared with these: the
canary of a policy that is served and trained elsewhere.

A checkpoint holds the paths of two saves for each adapter, in `tinker.json`: its state, from which training goes on,
and what is sampled with, for those who play the trained team. Both stay at the service when a checkpoint is deleted.

Shape legend: J loss tokens of several rows, one after the other.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import tinker
import torch
from tinker import types

from mas.algorithms.parts.losses.policy import LIMIT
from mas.algorithms.parts.losses.tokens import LossOptions, Signals, token_losses
from mas.algorithms.parts.rewards.interaction import paid_together
from mas.config.options import LearnerOptions
from mas.core.concurrency import finished, together
from mas.core.errors import CheckpointError, TrainingError
from mas.core.records import Episode
from mas.core.seeds import derive_seed
from mas.serving.publication import TOLERANCE
from mas.serving.remote_tinker import TinkerEngine, service_errors
from mas.training.adapters import check_sampled
from mas.training.batch import TrainRow, split_minibatches, trajectory_of
from mas.training.check_tinker import TinkerLoss, tinker_loss, trained_layers
from mas.training.checkpoint import NO_FILES, Progress, save_checkpoint, verify_checkpoint
from mas.training.learner import Logprobs
from mas.training.saved import TINKER_FILE, saved_at_tinker
from mas.training.session import TeamSession
from mas.training.setup import TrainSetup
from mas.training.stages import AdapterAssignment
from mas.training.step_metrics import MetricAccumulator, Metrics
from mas.training.trainable import Trainable
from mas.training.updates.policy_gradient import PolicyGradient
from mas.training.updates.update import UpdateResult

_SEEDS = 2**31
_EPS = 1e-8
"""Of AdamW, as the learner here has it."""
_LIKELIHOOD = TinkerLoss("cross_entropy")


class TinkerLearner:
    """Satisfies `mas.training.updates.update.PolicyLearner`. Blocks while the service works: it is for a thread.

    Args:
        has_canary: whether samples are compared with the policy in training.

    Attributes:
        clients: adapter -> what trains it; set once the service is there, as `engine`.
        updates: how often adapters were updated; an update of several adapters at once is one.
    """

    engine: TinkerEngine

    def __init__(self, options: LearnerOptions, loss: LossOptions, *, has_canary: bool) -> None:
        self.clients: Mapping[str, tinker.TrainingClient] = {}
        self.updates = 0
        self._options, self._loss, self._has_canary = options, loss, has_canary
        self._remote = tinker_loss(loss, options)

    def step(self, rows: Sequence[TrainRow], *, lr_scale: float = 1.0) -> dict[str, Metrics]:
        """As `Learner.step`.

        Raises:
            TrainingError: the rows were not sampled from the policy in training. EngineError: the service failed.
        """
        options = self._options
        params = types.AdamParams(
            learning_rate=options.lr * lr_scale,
            beta1=options.beta1,
            beta2=options.beta2,
            eps=_EPS,
            weight_decay=options.weight_decay,
            grad_clip_norm=options.clip_norm,
        )
        tallies: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
        norms: dict[str, list[float]] = defaultdict(list)
        is_wanted = self._remote.cap is not None or options.minibatches > 1  # else the first pass tells it
        start = dict(self.logprobs(rows)) if is_wanted else {}
        for number in range(options.epochs):
            for part in split_minibatches(rows, options.minibatches, self._loss):
                self._accumulate(part, tallies, start, is_first=not number and not norms)
                for name, norm in self._apply({row.adapter for row in part}, params).items():
                    norms[name] += norm
        return {
            name: tally.metrics() | ({"gradient_norm": fmean(norms[name])} if norms[name] else {})
            for name, tally in sorted(tallies.items())
        }

    def logprobs(self, rows: Sequence[TrainRow], *, is_reference: bool = False) -> Logprobs:
        """Of the policy in training, or of the bare base."""
        base, engine = self.engine.base, self.engine
        with service_errors(engine.url):
            if not is_reference:
                return self._computed(rows, _LIKELIHOOD, {}, is_learned=False)
            asked = [
                base.compute_logprobs(types.ModelInput.from_ints([*row.turn.prompt_ids, *row.turn.completion_ids]))
                for row in rows
            ]
            found = [one.result(engine.timeout_s) for one in asked]
        return {
            id(row.turn): [float(value or 0.0) for value in own[len(row.turn.prompt_ids) :]]
            for row, own in zip(rows, found, strict=True)
        }

    def entropies(self, rows: Sequence[TrainRow]) -> Logprobs:
        """Always refused; `check_tinker` lets nothing ask.

        Raises:
            TrainingError: a service does not tell entropies.
        """
        raise TrainingError(f"{self.engine.url} does not tell entropies")

    def _accumulate(
        self,
        rows: Sequence[TrainRow],
        tallies: Mapping[str, MetricAccumulator],
        start: dict[int, Sequence[float]],
        *,
        is_first: bool,
    ) -> None:
        """Have the service add up the gradient of one batch. `start`: log-probabilities when a turn was read first."""
        with service_errors(self.engine.url):
            now = self._computed(rows, self._remote, start, is_learned=True)
        for key, values in now.items():
            start.setdefault(key, values)
        for name in {row.adapter for row in rows}:
            own = [row for row in rows if row.adapter == name]
            losses = token_losses(self._signals(own, now, start), self._loss)
            told = {key: value_J for key, value_J in losses.values.items() if key != "entropy"}
            turns = [row.turn for row in own for _ in row.turn.completion_ids]
            tallies[name].add(told, len(own), slice(None), turns)
        if is_first and self._has_canary:
            check_sampled({name: tally.metrics() for name, tally in tallies.items()}, TOLERANCE["bfloat16"])

    def _computed(self, rows: Sequence[TrainRow], loss: TinkerLoss, start: Logprobs, *, is_learned: bool) -> Logprobs:
        """Log-probabilities of the completions under the policies in training; all adapters are asked at once."""
        asked = []
        for name in dict.fromkeys(row.adapter for row in rows):
            own = [row for row in rows if row.adapter == name]
            data = [datum_of(row, loss, start.get(id(row.turn), row.turn.logprobs)) for row in own]
            client = self.clients[name]
            compute = client.forward_backward if is_learned else client.forward
            asked.append((own, compute(data, loss.name, dict(loss.settings) or None)))  # type: ignore[arg-type]
        found: dict[int, Sequence[float]] = {}
        for own, future in asked:
            outputs = future.result(self.engine.timeout_s).loss_fn_outputs
            for row, output in zip(own, outputs, strict=True):
                logprobs = output["logprobs"].to_numpy()
                found[id(row.turn)] = logprobs[-len(row.turn.completion_ids) :].tolist()
        return found

    def _apply(self, names: set[str], params: types.AdamParams) -> dict[str, list[float]]:
        """One step of AdamW of each adapter; the norms of their gradients, as far as the service tells them."""
        with service_errors(self.engine.url):
            asked = {name: self.clients[name].optim_step(params) for name in sorted(names)}
            found = {name: future.result(self.engine.timeout_s).metrics or {} for name, future in asked.items()}
        self.updates += 1
        return {name: [one["grad_norm"]] if "grad_norm" in one else [] for name, one in found.items()}

    def _signals(self, rows: Sequence[TrainRow], now: Logprobs, start: Logprobs) -> Signals:
        """What the metrics are made of; there is no gradient, and no entropy."""
        lengths = torch.tensor([len(row.turn.completion_ids) for row in rows])
        segments = {key: number for number, key in enumerate(dict.fromkeys(map(trajectory_of, rows)))}
        rows_J = torch.repeat_interleave(torch.arange(len(rows)), lengths)
        trajectory_N = torch.tensor([segments[trajectory_of(row)] for row in rows])
        now_J = _joined(now[id(row.turn)] for row in rows)
        return Signals(
            logprobs_J=now_J,
            start_J=_joined(start[id(row.turn)] for row in rows),
            behaviour_J=_joined(row.turn.logprobs for row in rows),
            advantage_J=_joined(advantages_of(row) for row in rows),
            row_J=rows_J,
            trajectory_J=trajectory_N[rows_J],
            entropy_J=torch.zeros_like(now_J),
        )


def advantages_of(row: TrainRow) -> Sequence[float]:
    """Of each of its tokens."""
    return row.advantages or [row.advantage] * len(row.turn.completion_ids)


def datum_of(row: TrainRow, loss: TinkerLoss, start: Sequence[float]) -> types.Datum:
    """A turn as the service reads it: the prompt has no advantage. A loss there is a sum over tokens, so that the
    weights of `mas.training.batch.token_weights` are part of the advantages. `start`: see `TinkerLoss.cap`."""
    turn, advantages = row.turn, np.array(advantages_of(row)) * row.weight
    old: Sequence[float] = turn.logprobs
    if loss.cap is not None:
        apart = np.clip(np.array(start) - np.array(old), -LIMIT, LIMIT)
        old, advantages = start, advantages * np.minimum(np.exp(apart), loss.cap)
    ids, before = [*turn.prompt_ids, *turn.completion_ids], len(turn.prompt_ids) - 1

    def placed(values: Sequence[float]) -> types.TensorData:
        return types.TensorData.from_numpy(np.array([*[0.0] * before, *values], np.float32))

    inputs = {"target_tokens": types.TensorData.from_numpy(np.array(ids[1:], np.int64))}
    if loss.name == "cross_entropy":
        inputs["weights"] = placed(advantages.tolist())
    else:
        inputs |= {"logprobs": placed(old), "advantages": placed(advantages.tolist())}
    if loss.name == "gspo":
        inputs["sequence_ratio_mask"] = placed([1.0] * len(turn.completion_ids))
    return types.Datum(model_input=types.ModelInput.from_ints(ids[:-1]), loss_fn_inputs=inputs)


def _joined(values: Iterable[Sequence[float]]) -> torch.Tensor:
    return torch.tensor([*chain.from_iterable(values)])


class TrainableAtTinker(Trainable):
    """Adapters at a service, where their weights stay."""

    def __init__(self, setup: TrainSetup) -> None:
        self._setup = setup
        self.assignment = AdapterAssignment(setup.algorithm, setup.trained_adapters)
        self._learner = TinkerLearner(setup.learner, setup.algorithm.loss, has_canary=setup.train.canary)
        own = None if setup.method is None else setup.method.advantages
        self._update = PolicyGradient(self._learner, setup.algorithm, own)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mas-tinker-learner")
        self._states: Mapping[str, str] = {}

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
        names = set(self.assignment.adapter_of.values())
        if self._states.keys() != names:
            raise CheckpointError(
                f"checkpoint {checkpoint} holds adapters {sorted(self._states)}, the run has {sorted(names)}"
            )
        self._update.restore(progress.update, {})
        return progress
