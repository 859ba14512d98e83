"""The policy gradient: every turn gets an advantage, and its tokens are made more or less likely by it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from types import MappingProxyType
from typing import Any

from torch import Tensor

from mas.config.algorithm import AlgorithmOptions
from mas.core.records import Episode, Turn
from mas.training.advantages.running import Running
from mas.training.batch import TrainRow, train_rows
from mas.training.credit import Known, turn_advantages
from mas.training.learner import Learner, Logprobs
from mas.training.losses.penalty import kl_penalty
from mas.training.updates.smoother import Smoother
from mas.training.updates.update import Improved


class PolicyGradient:
    """Compares the turns as `algorithm.advantage` says, and lets the learner follow `algorithm.loss`."""

    def __init__(self, learner: Learner, algorithm: AlgorithmOptions) -> None:
        self.learner = learner
        self.algorithm = algorithm
        self.running = Running(algorithm.advantage.decay)
        smoothing = algorithm.loss.smoothing
        self.smoother = Smoother(learner, smoothing) if smoothing is not None else None

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> Improved:
        """See `Update`."""
        turns = [turn for episode in episodes for turn in episode.turns]
        advantages, rows = self.rows(turns, adapter_of, step, {episode.id: episode for episode in episodes})
        if self.smoother is not None:
            rows = self.smoother.smoothed(rows, step)
        learned = self.learner.step(rows, lr_scale=lr_scale)
        return Improved(rows=rows, advantages=advantages, learned=learned, metrics={})

    def state(self) -> Mapping[str, Any]:
        """Running baselines and histories of entropy, where there are any."""
        means = self.running.state()
        kept: dict[str, Any] = {"running": dict(means)} if means else {}
        return kept if self.smoother is None else kept | {"entropy": dict(self.smoother.state())}

    def tensors(self) -> Mapping[str, Tensor]:
        """Nothing, as of `state`."""
        return {}

    def restore(self, state: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See `state`."""
        self.running = Running(self.algorithm.advantage.decay, dict(state.get("running", {})))
        if self.smoother is not None:
            self.smoother.restore(state.get("entropy", {}))

    def rows(
        self,
        turns: Sequence[Turn],
        adapter_of: Mapping[str, str],
        step: int = 1,
        episodes: Mapping[str, Episode] = MappingProxyType({}),
    ) -> tuple[list[float], list[TrainRow]]:
        """Every turn's advantage, and what the learner is given; the KL is paid here if rewards pay it."""
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
        )
        advantages = turn_advantages(turns, self.algorithm.reward, advantage, known, self.running)
        rows = self._batch(turns, advantages, adapter_of)
        return advantages, [replace(row, reference=base[id(row.turn)]) for row in rows] if is_paid else rows

    def _batch(
        self, turns: Sequence[Turn], advantages: Sequence[float], adapter_of: Mapping[str, str]
    ) -> list[TrainRow]:
        loss = self.algorithm.loss
        return train_rows(turns, advantages, adapter_of, aggregation=loss.aggregation, max_length=loss.max_length)

    def _penalties(self, turns: Sequence[Turn], rows: Sequence[TrainRow], base: Logprobs) -> list[float]:
        """What each turn pays for being likelier than under the base; turns of frozen roles have no row, and pay 0."""
        own, kl = self.learner.logprobs(rows), self.algorithm.loss.kl
        return [kl_penalty(own[id(turn)], base[id(turn)], kl) if id(turn) in own else 0.0 for turn in turns]

    def _entropies(self, turns: Sequence[Turn], rows: Sequence[TrainRow]) -> list[float]:
        """Mean entropy of each turn's tokens under the policy now; 0 for turns of frozen roles."""
        found = self.learner.entropies(rows)
        return [fmean(found[id(turn)]) if id(turn) in found else 0.0 for turn in turns]
