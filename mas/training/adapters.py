"""Training that changes adapters: a learner on the base, and an update that says what it learns from.

Two checks in every step (the canary) say that the served policy is the trained policy. After the update and before
publishing: the log-probabilities that the engine sampled with are compared with those that the learner computed for the
same tokens at the start of the step. They are equal if the whole serving path (adapter, cache, padding, sampling)
computes what the learner computes. Before a new version serves: the engine scores some of the step's completions with
it (`mas.serving.store`), and must find what the learner finds, which is computed here.
"""

import math
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from msgspec.structs import replace as replace_turn

from mas.algorithms.parts.rewards.interaction import paid_together
from mas.algorithms.parts.warm_start import WarmStartOptions
from mas.core.concurrency import finished
from mas.core.engine import AdapterRef
from mas.core.errors import TrainingError
from mas.core.records import Episode, Turn
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, score_rows
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterUpdate, Probe
from mas.serving.store import AdapterStore
from mas.training.batch import TrainRow, train_rows
from mas.training.checkpoint import NO_FILES, Progress, load_checkpoint, save_checkpoint, update_tensors
from mas.training.learner import Learner
from mas.training.saved import initial_adapters
from mas.training.session import TeamSession
from mas.training.setup import TrainSetup
from mas.training.stages import AdapterAssignment
from mas.training.trainable import Trainable
from mas.training.updates.build_update import build_update, loss_of
from mas.training.updates.preference import IMITATION
from mas.training.updates.update import UpdateResult

_CHECKED_TURNS = 8
"""Of each older version that has sampled for a step: its own weights must give them what it drew them with."""
_PROMPT_TOKENS = 16
"""Of a probe's prompt, its last ones: a short text tells two sets of weights apart, and a long one costs more."""
_Text = tuple[tuple[int, ...], tuple[int, ...]]
"""A prompt and a completion."""


class TrainableAdapters(Trainable):
    """Adapters of a base: every new version of an adapter passes the canary."""

    def __init__(self, setup: TrainSetup, base: BaseModel) -> None:
        self.base = base
        self._team = setup.team
        self._has_canary = setup.train.canary
        is_aside = setup.train.staleness > 0 or setup.cluster.is_used
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mas-learner") if is_aside else None
        surrogate = None if setup.method is None else setup.method.loss
        self.learner = Learner(base, initial_adapters(setup, base), setup.learner, loss_of(setup.algorithm), surrogate)
        self.update = build_update(self.learner, setup.algorithm, setup.train.seed, setup.method)
        self.is_shared = setup.algorithm.reward.shared
        self.assignment = AdapterAssignment(setup.algorithm, setup.trained_adapters)
        self._copied: tuple[str, ...] = ()
        self._published: AdapterStore | None = None

    @property
    def _store(self) -> AdapterStore:
        """Where the adapters are published, while they are served."""
        assert self._published is not None
        return self._published

    @asynccontextmanager
    async def serving(self, session: TeamSession, versions: Mapping[str, int]) -> AsyncIterator[None]:
        """See `Trainable`; the adapters stay published."""
        store = self._published = session.publishing.store
        if session.programs is not None and self._thread is None:  # the loop answers them meanwhile
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="mas-learner")
        for name, weights in self.learner.adapters.items():
            await store.publish(name, weights, version=versions[name])
        try:
            yield
        finally:
            if self._thread is not None:
                self._thread.shutdown(wait=False)

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
            TrainingError: the episodes were not drawn from the policy in training.
        """
        if self.is_shared:
            episodes = paid_together(episodes)
        if self._thread is None:
            return self._improve(episodes, trained, step, lr_scale, {})
        store = self._store
        older = {
            turn.adapter for one in episodes for turn in one.turns if turn.is_replayed and turn.adapter is not None
        }
        weights = {ref: store.weights(str(ref)) for ref in older if ref in store.versions(ref.name)}
        return await finished(self._thread, partial(self._improve, episodes, trained, step, lr_scale, weights))

    def _improve(
        self,
        episodes: Sequence[Episode],
        trained: Mapping[str, str],
        step: int,
        lr_scale: float,
        older: Mapping[AdapterRef, AdapterWeights],
    ) -> UpdateResult:
        """See `improve`. `older`: versions of before that have sampled some of the episodes."""
        gaps = older_gaps(self.learner, episodes, trained, older) if self._has_canary else {}
        before = self.learner.updates
        improved = self.update.improve(episodes, trained, step=step, lr_scale=lr_scale)
        learned = dict(improved.learned)
        for name, gap in gaps.items():
            if name in learned:
                learned[name] = {**learned[name], "behaviour_gap": max(learned[name]["behaviour_gap"], gap)}
        improved = replace(improved, learned=learned, optimiser_steps=self.learner.updates - before)
        self._copy_backbone(improved, step - 1)
        self._check_sampled(improved)
        return improved

    async def imitate(self, kept: Sequence[Turn], sampled: Sequence[Turn], options: WarmStartOptions) -> UpdateResult:
        """The warm start: cross-entropy on what was kept of the turns that were sampled from the adapters as they are.

        Roles learn it at their own temperature, also where it was sampled at another. What the KL is measured to, if it
        is an average of the adapters, begins with what was learned.

        Raises:
            TrainingError: the turns were not drawn from the policy in training.
        """
        work = partial(self._imitate, kept, sampled, options)
        return work() if self._thread is None else await finished(self._thread, work)

    def _imitate(self, kept: Sequence[Turn], sampled: Sequence[Turn], options: WarmStartOptions) -> UpdateResult:
        adapter_of, learner, loss = self.assignment.warm_start_adapters(), self.learner, IMITATION
        most = max(Counter(adapter_of[turn.role] for turn in kept).values())
        passes = {"epochs": options.epochs, "minibatches": math.ceil(most / options.batch)}
        imitating = learner.minimising(loss, learner.options.model_copy(update=passes))
        turns = list(kept) if options.temperature is None else self._at_own_temperature(kept, adapter_of)
        advantages = [1.0] * len(turns)
        rows = train_rows(turns, advantages, adapter_of, aggregation=loss.aggregation, max_length=loss.max_length)
        learned = imitating.step(rows)
        for name in learned if learner.references else ():
            learner.references[name].approach(learner.adapters[name], 1)
        chosen = {turn.id for turn in kept}
        signs = [float(turn.id in chosen) for turn in sampled]
        improved = UpdateResult(
            rows=rows, advantages=signs, learned=learned, metrics={}, optimiser_steps=imitating.updates
        )
        self._copy_backbone(improved, 0)
        self._check_sampled(improved)
        return improved

    def _at_own_temperature(self, turns: Sequence[Turn], adapter_of: Mapping[str, str]) -> list[Turn]:
        """With the log-probabilities that the learner gives them at their role's temperature."""
        if self._has_canary:
            self._check_kept(turns, adapter_of)
        own = [replace_turn(turn, temperature=self._team.roles[turn.role].temperature) for turn in turns]
        known = self.learner.logprobs([TrainRow(turn, adapter_of[turn.role], 0.0, 1.0) for turn in own])
        return [replace_turn(turn, logprobs=tuple(known[id(turn)])) for turn in own]

    def _check_kept(self, turns: Sequence[Turn], adapter_of: Mapping[str, str]) -> None:
        """Raise TrainingError if the turns were not drawn from the policy in training, at their own temperature."""
        known = self.learner.logprobs([TrainRow(turn, adapter_of[turn.role], 0.0, 1.0) for turn in turns])
        gaps: dict[str, list[float]] = {}
        for turn in turns:
            pairs = zip(known[id(turn)], turn.logprobs, strict=True)
            gaps.setdefault(adapter_of[turn.role], []).extend(abs(own - drawn) for own, drawn in pairs)
        check_sampled({name: {"behaviour_gap": fmean(own)} for name, own in gaps.items()}, self.learner.tolerance)

    def _copy_backbone(self, improved: UpdateResult, steps_done: int) -> None:
        """Until a fork: give the weights of the first role's adapter to those of the others."""
        backbone, *others = self.assignment.copies(steps_done) or ("",)
        self._copied = tuple(others) if backbone in improved.learned else ()
        self.learner.copy(backbone, self._copied)

    def _check_sampled(self, improved: UpdateResult) -> None:
        """Raise TrainingError unless the engine sampled with the log-probabilities that the learner computes."""
        if self._has_canary:
            check_sampled(improved.learned, self.learner.tolerance)

    async def publish(self, session: TeamSession, improved: UpdateResult) -> Mapping[str, Any]:
        """Serve what was learned, all of it or nothing, behind the canary, which tells what it found."""
        store = self._store
        updates = await self._updates(store, improved)
        published = await store.publish_all(updates, allowed=self.learner.tolerance)
        for name in self._copied:
            await store.publish(name, self.learner.adapters[name])
        check_held(store, self.learner, [*improved.learned, *self._copied])
        return {"canary": {name: one.metrics() for name, one in published.items() if one.gap is not None}}

    async def _updates(self, store: AdapterStore, improved: UpdateResult) -> dict[str, AdapterUpdate]:
        """With what the canary compares. In float32 it needs no scores of the weights that are served until now."""
        learned = {name: self.learner.adapters[name] for name in improved.learned}
        if not self._has_canary:
            return {name: AdapterUpdate(weights) for name, weights in learned.items()}
        served = {name: store.weights(name) for name in learned}
        probes = await self._probes(improved.rows, learned)

        async def before(name: str) -> Sequence[Probe]:
            return (await self._probes(improved.rows, served))[name]

        knows_before = self.base.model.dtype != torch.float32
        return {
            name: AdapterUpdate(weights, probes.get(name, ()), before=partial(before, name) if knows_before else None)
            for name, weights in learned.items()
        }

    async def _probes(
        self, rows: Sequence[TrainRow], weights: Mapping[str, AdapterWeights]
    ) -> Mapping[str, Sequence[Probe]]:
        """See `probes_of`. A sharded base computes in the learner's thread alone."""
        work = partial(probes_of, self.base, rows, weights)
        return work() if self._thread is None or self.base.blocks is None else await finished(self._thread, work)

    def versions(self, session: TeamSession) -> Mapping[str, int]:
        """What the engine serves of what is trained."""
        served = self._store.current()
        return {name: served[name].version for name in self.learner.adapters}

    def state(self) -> Mapping[str, Any]:
        return self.update.state()

    def save(self, directory: Path, progress: Progress, keep: int, more: Mapping[str, bytes] = NO_FILES) -> Path:
        return save_checkpoint(directory, self.learner, progress, keep, self.update.tensors(), more)

    def load(self, checkpoint: Path) -> Progress:
        progress = load_checkpoint(checkpoint, self.learner)
        self.update.restore(progress.update, update_tensors(checkpoint))
        return progress

    @property
    def adapters(self) -> Mapping[str, AdapterWeights]:
        return self.learner.adapters


def older_gaps(
    learner: Learner,
    episodes: Sequence[Episode],
    trained: Mapping[str, str],
    older: Mapping[AdapterRef, AdapterWeights],
) -> dict[str, float]:
    """Of each adapter that older versions have sampled for: mean nats a token between what was sampled and what the
    weights of that version give up to eight of its turns in the learner."""
    turns: dict[AdapterRef, list[Turn]] = {ref: [] for ref in older}
    for turn in (turn for episode in episodes for turn in episode.turns if turn.role in trained):
        if turn.adapter in turns and len(turns[turn.adapter]) < _CHECKED_TURNS:
            turns[turn.adapter].append(turn)
    gaps: dict[str, list[float]] = {}
    for ref, checked in turns.items():
        rows = [TrainRow(turn, ref.name, 0.0, 1.0) for turn in checked]
        logprobs = learner.logprobs(rows, adapters={ref.name: older[ref]}) if rows else {}
        for turn in checked:
            pairs = zip(logprobs[id(turn)], turn.logprobs, strict=True)
            gaps.setdefault(trained[turn.role], []).extend(abs(own - drawn) for own, drawn in pairs)
    return {name: fmean(found) for name, found in gaps.items()}


def check_sampled(learned: Mapping[str, Mapping[str, float]], allowed: float) -> None:
    """Compare the samples of a step with the policy that the learner held before it; `learned` is its metrics.

    Raises:
        TrainingError: a `behaviour_gap` is above what is `allowed`, in mean nats a token.
    """
    for name, metrics in learned.items():
        gap = metrics["behaviour_gap"]
        if not gap <= allowed:
            raise TrainingError(
                f"the samples of adapter {name!r} were not drawn from the policy in training: their log-probabilities "
                f"differ by {gap:.2g} nats a token, at most {allowed:.2g} is allowed; the engine served another "
                "version, or computes something else"
            )


def check_held(store: AdapterStore, learner: Learner, names: Iterable[str]) -> None:
    """The store must hold the learner's tensors bit by bit, however small the last update was; an engine reads from it.

    Raises:
        TrainingError: it does not.
    """
    for name in names:
        held, trained = store.weights(name).parameters(), learner.adapters[name].parameters()
        if not all(torch.equal(a, b) for a, b in zip(held, trained, strict=True)):
            ref = store.current()[name]
            raise TrainingError(f"adapter {ref} holds other weights than the learner; its update was not delivered")


def probes_of(
    base: BaseModel, rows: Sequence[TrainRow], weights: Mapping[str, AdapterWeights]
) -> dict[str, tuple[Probe, ...]]:
    """Up to two different completions of each adapter, behind the last tokens of their prompts, with the
    log-probabilities that the given weights give them. All in one pass: rounding depends on the weights alone.

    The first, and others to the same prompt if there are any: what they begin with in common is then computed once.
    None fills the context, since an engine may have to draw one token behind what it scores.
    """
    texts = [(name, text) for name in weights for text in _texts(rows, name, base.text.limits.context)[:2]]
    scores = score_rows(base, [ScoredRow(*text, weights[name]) for name, text in texts]) if texts else []
    probes: dict[str, tuple[Probe, ...]] = {}
    for (name, text), score in zip(texts, scores, strict=True):
        probes[name] = (*probes.get(name, ()), Probe(*text, score))
    return probes


def _texts(rows: Sequence[TrainRow], name: str, context: int) -> list[_Text]:
    """What an adapter may be probed with, the best first."""
    turns = [row.turn for row in rows if row.adapter == name]
    texts = dict.fromkeys((turn.prompt_ids[-_PROMPT_TOKENS:], turn.completion_ids) for turn in turns)
    fitting = [text for text in texts if sum(map(len, text)) < context]
    return sorted(fitting, key=lambda text: text[0] != fitting[0][0])
