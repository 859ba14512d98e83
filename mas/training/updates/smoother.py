"""What every adapter's entropy used to be, and the rows of a step beside it: EPO's entropy smoothing.

Source: EPO, arXiv 2509.22576.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mas.config.updates import SmoothingOptions
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.losses.entropy_history import EntropyHistory
from mas.training.schedules import PhaseWeight


class Smoother:
    """Carries one history per adapter; a turn of which there is none yet is not smoothed."""

    def __init__(self, learner: Learner, options: SmoothingOptions) -> None:
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
        """The histories, as JSON."""
        return {name: history.state() for name, history in self._histories.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state()`."""
        self._histories = {name: EntropyHistory() for name in state}
        for name, history in self._histories.items():
            history.restore(state[name])
