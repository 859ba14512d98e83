"""Watchers for tests that look at what was played and learned."""

from collections.abc import Sequence
from typing import Any

from mas.core.records import Episode
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer
from mas.training.updates.update import UpdateResult
from mas.training.watch import Silent


class Sampled(Silent):
    """Keeps the sampled evaluations, `found`, by step."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, Evaluation] = {}

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "sampled":
            self.found[step] = evaluation


class Seen(Silent):
    """Keeps each step's episodes and metrics; `improved`: what updates did, of a trainer that it listens to."""

    def __init__(self) -> None:
        super().__init__()
        self.episodes: list[Sequence[Episode]] = []
        self.metrics: list[dict[str, Any]] = []
        self.improved: list[UpdateResult] = []

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)

    def listen(self, trainer: Trainer) -> None:
        """Keep what its updates do, too."""
        improve = trainer.trainable.improve

        async def kept(*given: Any, **named: Any) -> UpdateResult:
            self.improved.append(await improve(*given, **named))
            return self.improved[-1]

        trainer.trainable.improve = kept
