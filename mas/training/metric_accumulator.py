"""The token metrics of one adapter, summed over a step.

Shape legend: J loss tokens of several rows, one after the other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from mas.core.records import Turn
from mas.training.losses.off_policy import MASKED
from mas.training.losses.policy import (
    importance_statistics,
)

Metrics = dict[str, float]


class MetricAccumulator:
    """Sums of one adapter's token metrics over everything that it learned from in a step.

    Attributes:
        rows: how many. turns: of every loss token.

    The numbers stay on the model's device until they are read, so that a GPU need not wait after every micro-batch.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.turns: list[Turn] = []
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._of_updates: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], rows: int, tokens: slice, turns: Sequence[Turn]) -> None:
        """Add so many rows, whose loss tokens are these. `turns`: of every token of the micro-batch."""
        self.rows += rows
        self.turns += turns[tokens]
        for name, value_J in values.items():
            self._values[name].append(value_J[tokens])

    def note(self, name: str, value: float) -> None:
        """Add what was found of a whole update; its metric is the mean over updates."""
        self._of_updates[name].append(value)

    def values(self) -> dict[str, Tensor]:
        """What was added of every loss token, by the name of its metric."""
        return {name: torch.cat(parts) for name, parts in self._values.items()}

    def merge(self, other: "MetricAccumulator") -> None:
        """Add all that another one was given."""
        self.rows += other.rows
        self.turns += other.turns
        for name, parts in other._values.items():
            self._values[name] += parts
        for name, numbers in other._of_updates.items():
            self._of_updates[name] += numbers

    def metrics(self) -> Metrics:
        """Means over tokens, what the importance weights say of the samples, and counts; `behaviour_gap` is the mean
        over what was sampled in this step, 0 where all was replayed.

        Where several roles speak with this adapter, `ROLE.ess` and the like say it of each.
        """
        values = self.values()
        found = {name: float(value_J.double().mean()) for name, value_J in values.items()}
        fresh = [not turn.is_replayed for turn in self.turns]
        if not all(fresh):
            gap_J = values["behaviour_gap"][torch.tensor(fresh, device=values["behaviour_gap"].device)]
            found["behaviour_gap"] = float(gap_J.double().mean()) if any(fresh) else 0.0
        found |= _of_samples(values["importance"])
        roles = sorted({turn.role for turn in self.turns})
        for role in roles if len(roles) > 1 else ():
            own = torch.tensor([one.role == role for one in self.turns], device=values["importance"].device)
            left_out = [name for name in ("importance_clipped", *MASKED) if name in values]
            of_role = {name: float(values[name][own].double().mean()) for name in left_out}
            of_role |= _of_samples(values["importance"][own])
            found |= {f"{role}.{name}": value for name, value in of_role.items()}
        found |= {name: fmean(numbers) for name, numbers in self._of_updates.items()}
        return found | {
            "ratio_max": float(values["ratio"].max()),
            "tokens": float(len(self.turns)),
            "rows": float(self.rows),
        }


def _of_samples(importance_J: Tensor) -> Metrics:
    found = importance_statistics(importance_J)
    return {"importance_max": found.largest, "ess": found.ess}
