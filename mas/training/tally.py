"""Metrics of what an adapter learned from in a step.

Shape legend: J loss tokens of a micro-batch.
"""

from collections import defaultdict
from collections.abc import Mapping

import torch
from torch import Tensor

from mas.training.losses.importance import importance_statistics

Metrics = dict[str, float]


class Tally:
    """Sums of one adapter's token metrics over everything that it learned from in a step.

    They stay on the model's device until they are read, so that a GPU need not wait after every micro-batch.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.rows = 0
        self._values: dict[str, list[Tensor]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], rows: int, tokens: slice) -> None:
        """Add so many rows, whose loss tokens are these."""
        self.tokens += tokens.stop - tokens.start
        self.rows += rows
        for name, value_J in values.items():
            self._values[name].append(value_J[tokens])

    def metrics(self) -> Metrics:
        """Means over tokens, what the importance weights say of the samples, and counts."""
        values = {name: torch.cat(parts) for name, parts in self._values.items()}
        importance = importance_statistics(values["importance"])
        return {name: float(value_J.double().mean()) for name, value_J in values.items()} | {
            "ratio_max": float(values["ratio"].max()),
            "importance_max": importance.largest,
            "ess": importance.ess,
            "tokens": float(self.tokens),
            "rows": float(self.rows),
        }
