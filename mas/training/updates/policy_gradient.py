"""The policy gradient: rows with advantages and penalties, and EPO's entropy smoothing beside it.

Source of the smoothing: EPO, arXiv 2509.22576.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType
from typing import Any

from torch import Tensor

from mas.algorithms.parts.advantages.adjustments import entropy_scaled
from mas.algorithms.parts.advantages.group import RunningBaseline, members
from mas.algorithms.parts.advantages.pipeline import Compare, Known, turn_advantages
from mas.algorithms.parts.losses.policy import SmoothingOptions, kl_penalty
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.sampling.selection import largest_multiple
from mas.algorithms.parts.schedules import PhaseWeight
from mas.core.records import Episode, Turn
from mas.core.seeds import derive_seed
from mas.training.batch import TrainRow, train_rows, weighted
from mas.training.learner import Logprobs
from mas.training.stages import rewards_of
from mas.training.updates.update import PolicyLearner, Update, UpdateResult


class PolicyGradient(Update):
    """Compares the turns as `algorithm.advantage` says, and lets the learner follow `algorithm.loss`.

    Args:
        own: compares them in place of baseline and scale; see `turn_advantages`.
    """

    def __init__(self, learner: PolicyLearner, algorithm: AlgorithmOptions, own: Compare | None = None) -> None:
        self.learner = learner
        self.algorithm = algorithm
        self._own = own
        self.running = RunningBaseline(algorithm.advantage.decay)
        smoothing = algorithm.loss.smoothing
        self.smoother = Smoother(learner, smoothing) if smoothing is not None else None

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> UpdateResult:
        """See `Update`."""
        turns = [turn for episode in episodes for turn in episode.turns]
        advantages, rows = self.rows(turns, adapter_of, step, {episode.id: episode for episode in episodes})
        if self.smoother is not None:
            rows = self.smoother.smoothed(rows, step)
        count = Counter(row.adapter for row in rows)
        rows = self._downsampled(rows, step)
        learned = self.learner.step(rows, lr_scale=lr_scale)
        if self.algorithm.loss.multiple_of is not None:
            kept = Counter(row.adapter for row in rows)
            learned = {name: {**own, "left_out": float(count[name] - kept[name])} for name, own in learned.items()}
        return UpdateResult(rows=rows, advantages=advantages, learned=learned, metrics={})

    def state(self) -> Mapping[str, Any]:
        """Running baselines and histories of entropy, where there are any."""
        means = self.running.state()
        kept: dict[str, Any] = {"running": dict(means)} if means else {}
        return kept if self.smoother is None else kept | {"entropy": dict(self.smoother.state())}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self.running = RunningBaseline(self.algorithm.advantage.decay, dict(state.get("running", {})))
        if self.smoother is not None:
            self.smoother.restore(state.get("entropy", {}))

    def rows(
        self,
        turns: Sequence[Turn],
        adapter_of: Mapping[str, str],
        step: int = 1,
        episodes: Mapping[str, Episode] = MappingProxyType({}),
    ) -> tuple[list[float], list[TrainRow]]:
        """Every turn's advantage, and what the learner is given; the KL is paid here if rewards pay it.

        `episodes`: by id.
        """
        loss, advantage = self.algorithm.loss, self.algorithm.advantage
        is_paid = loss.kl > 0 and loss.kl_in == "reward"
        bare = self._batch(turns, [0.0] * len(turns), adapter_of) if is_paid or advantage.uncertainty else []
        base = self.learner.logprobs(bare, is_reference=True) if is_paid else {}
        known = Known(
            penalties=self._penalties(turns, bare, base) if is_paid else (),
            entropies=self._entropies(turns, bare) if advantage.uncertainty else (),
            step=step,
            adapter_of=adapter_of,
            episodes=episodes,
            won=frozenset(name for name, episode in episodes.items() if episode.success),
        )
        advantages = turn_advantages(
            turns, rewards_of(self.algorithm, step - 1), advantage, known, self.running, self._own
        )
        rows = self._batch(turns, advantages, adapter_of)
        if advantage.entropy_weight:
            rows = self._by_token(rows, advantage.entropy_weight)
        return advantages, [replace(row, reference=base[id(row.turn)]) for row in rows] if is_paid else rows

    def _batch(
        self, turns: Sequence[Turn], advantages: Sequence[float], adapter_of: Mapping[str, str]
    ) -> list[TrainRow]:
        loss = self.algorithm.loss
        return train_rows(turns, advantages, adapter_of, aggregation=loss.aggregation, max_length=loss.max_length)

    def _downsampled(self, rows: list[TrainRow], step: int) -> list[TrainRow]:
        """Of every adapter as many rows as the largest multiple that is asked for, weighted as a batch of their own."""
        loss = self.algorithm.loss
        if loss.multiple_of is None:
            return rows
        kept: list[TrainRow] = []
        for name, indices in members([row.adapter for row in rows]).items():
            chosen = largest_multiple(len(indices), loss.multiple_of, derive_seed("downsample", step, str(name)))
            kept += [rows[indices[number]] for number in chosen or range(len(indices))]
        return weighted(kept, aggregation=loss.aggregation, max_length=loss.max_length)

    def _by_token(self, rows: Sequence[TrainRow], weight: float) -> list[TrainRow]:
        """Every token with an advantage of its own, by its entropy under the policy now, adapter by adapter."""
        entropies, scaled = self.learner.entropies(rows), list(rows)
        for indices in members([row.adapter for row in rows]).values():
            flat = [rows[i].advantage for i in indices for _ in rows[i].turn.completion_ids]
            found = iter(entropy_scaled(flat, [h for i in indices for h in entropies[id(rows[i].turn)]], weight))
            for i in indices:
                scaled[i] = replace(rows[i], advantages=[next(found) for _ in rows[i].turn.completion_ids])
        return scaled

    def _penalties(self, turns: Sequence[Turn], rows: Sequence[TrainRow], base: Logprobs) -> list[float]:
        """What each turn pays for being likelier than under the base; turns of frozen roles have no row, and pay 0."""
        own, kl = self.learner.logprobs(rows), self.algorithm.loss.kl
        return [kl_penalty(own[id(turn)], base[id(turn)], kl) if id(turn) in own else 0.0 for turn in turns]

    def _entropies(self, turns: Sequence[Turn], rows: Sequence[TrainRow]) -> list[float]:
        """Mean entropy of each turn's tokens under the policy now; 0 for turns of frozen roles."""
        found = self.learner.entropies(rows)
        return [fmean(found[id(turn)]) if id(turn) in found else 0.0 for turn in turns]


class EntropyHistory:
    """The mean entropy of all tokens so far that were sampled in a step of the episode, one mean per step.

    Source: EPO, arXiv 2509.22576, average entropy of an environment step over past epochs; that tokens, not epochs,
    weigh equally is our reading.
    """

    def __init__(self) -> None:
        self._sums: dict[int, float] = {}
        self._counts: dict[int, int] = {}

    def usual(self, step: int) -> float | None:
        """In nats; None: there is no history of this step, so that nothing can be smoothed."""
        return self._sums[step] / self._counts[step] if step in self._counts else None

    def add(self, step: int, entropies: Sequence[float]) -> None:
        """The entropies in nats of the tokens of one turn in that step, once the update that they belong to is done.

        Raises:
            ValueError: the step is negative, or an entropy is negative or not finite.
        """
        wrong = [value for value in entropies if not (math.isfinite(value) and value >= 0)]
        if wrong or step < 0:
            raise ValueError(f"entropies {wrong} in step {step}: both must be at least 0, and finite")
        if entropies:
            self._sums[step] = self._sums.get(step, 0.0) + math.fsum(entropies)
            self._counts[step] = self._counts.get(step, 0) + len(entropies)

    def state(self) -> dict[str, Any]:
        return {str(step): [self._sums[step], count] for step, count in self._counts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sums = {int(step): float(total) for step, (total, _) in state.items()}
        self._counts = {int(step): int(count) for step, (_, count) in state.items()}


class Smoother:
    """Carries one history per adapter; a turn of which there is none yet is not smoothed."""

    def __init__(self, learner: PolicyLearner, options: SmoothingOptions) -> None:
        self._learner = learner
        self._weight = options.weight
        self._phase = PhaseWeight(epochs=options.steps)
        self._histories: dict[str, EntropyHistory] = {}

    def smoothed(self, rows: Sequence[TrainRow], step: int) -> list[TrainRow]:
        """The rows of a step (from 1) with what their entropies used to be, which then learns of what they are now."""
        weight = self._weight * self._phase(step - 1)
        usual = [self._history(row).usual(row.turn.turn) for row in rows]
        found = self._learner.entropies(rows)
        for row in rows:
            self._history(row).add(row.turn.turn, [max(value, 0.0) for value in found[id(row.turn)]])
        pairs = zip(rows, usual, strict=True)
        return [row if own is None else replace(row, usual=own, smoothing=weight) for row, own in pairs]

    def _history(self, row: TrainRow) -> EntropyHistory:
        return self._histories.setdefault(row.adapter, EntropyHistory())

    def state(self) -> Mapping[str, Any]:
        return {name: history.state() for name, history in self._histories.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._histories = {name: EntropyHistory() for name in state}
        for name, history in self._histories.items():
            history.restore(state[name])
