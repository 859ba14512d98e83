"""The policy gradient: every turn gets an advantage, and its tokens are made more or less likely by it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mas.config.algorithm import AlgorithmOptions
from mas.core.records import Episode, Turn
from mas.training.batch import TrainRow, train_rows
from mas.training.credit import turn_advantages
from mas.training.learner import Learner
from mas.training.losses.penalty import kl_penalty
from mas.training.updates.update import Improved


class PolicyGradient:
    """Compares the turns as `algorithm.advantage` says, and lets the learner follow `algorithm.loss`."""

    def __init__(self, learner: Learner, algorithm: AlgorithmOptions) -> None:
        self.learner = learner
        self.algorithm = algorithm

    def improve(
        self, episodes: Sequence[Episode], adapter_of: Mapping[str, str], *, step: int, lr_scale: float
    ) -> Improved:
        """See `Update`."""
        turns = [turn for episode in episodes for turn in episode.turns]
        advantages, rows = self.rows(turns, adapter_of)
        learned = self.learner.step(rows, lr_scale=lr_scale)
        return Improved(rows=rows, advantages=advantages, learned=learned, metrics={})

    def state(self) -> Mapping[str, Any]:
        """Nothing: every step compares only its own turns."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """See `state`."""

    def rows(self, turns: Sequence[Turn], adapter_of: Mapping[str, str]) -> tuple[list[float], list[TrainRow]]:
        """Every turn's advantage, and what the learner is given; the KL is paid here if rewards pay it."""
        algorithm = self.algorithm
        loss = algorithm.loss

        def rows_of(advantages: Sequence[float]) -> list[TrainRow]:
            return train_rows(turns, advantages, adapter_of, aggregation=loss.aggregation, max_length=loss.max_length)

        if not loss.kl or loss.kl_in == "loss":
            advantages = turn_advantages(turns, algorithm.reward, algorithm.advantage)
            return advantages, rows_of(advantages)
        rows = rows_of([0.0] * len(turns))
        own, base = self.learner.logprobs(rows), self.learner.logprobs(rows, is_reference=True)
        # Turns of frozen roles have no row and pay nothing.
        paid = [kl_penalty(own[id(turn)], base[id(turn)], loss.kl) if id(turn) in own else 0.0 for turn in turns]
        advantages = turn_advantages(turns, algorithm.reward, algorithm.advantage, paid)
        return advantages, [replace(row, reference=base[id(row.turn)]) for row in rows_of(advantages)]
