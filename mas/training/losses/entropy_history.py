"""What entropy used to be, by the step of the episode: the middle of EPO's band. Free of torch."""

import math
from collections.abc import Mapping, Sequence
from typing import Any


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
        """Plain data for a checkpoint."""
        return {str(step): [self._sums[step], count] for step, count in self._counts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken."""
        self._sums = {int(step): float(total) for step, (total, _) in state.items()}
        self._counts = {int(step): int(count) for step, (_, count) in state.items()}
