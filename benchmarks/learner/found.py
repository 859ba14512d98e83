"""What was measured over one workload, as rows and targets."""

from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.learner.names import ROWS
from benchmarks.learner.workload import TargetOptions, WorkloadOptions
from benchmarks.result import LEFT_OUT, Row, Target
from benchmarks.rounds import Timing, ratio

PEAK = "peak_mib"
"""Measure: memory that a step needs beyond what is there before it."""

_LEAST_MIB = 1.0
"""A step that needs less counts as one that needs this: below it, pages are all that is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One workload's measurements; mappings by short name, of a row or of a sweep's point.

    Attributes:
        titles: what the table calls each, in its order.
        reference: the short name that ratios are to.
        absent: why somebody did not run.
        notes: what could not be measured at all, and why.
    """

    workload: WorkloadOptions
    parameters: int
    device: str
    titles: Mapping[str, str]
    reference: str
    timings: Mapping[str, Timing]
    measures: Mapping[str, Mapping[str, float]]
    absent: Mapping[str, str]
    notes: tuple[str, ...]

    def rows(self) -> list[Row]:
        """Everybody who was asked for."""
        size = self.workload.name
        return [
            Row(name=title, size=size, parameters=self.parameters, note=self.absent[name])
            if name in self.absent
            else self._measured(name, title)
            for name, title in self.titles.items()
        ]

    def _measured(self, name: str, title: str) -> Row:
        size, own, reference = self.workload.name, self.timings[name], self.timings[self.reference]
        return Row.measured(title, size, self.parameters, own, reference, dict(self.measures[name]))

    def targets(self) -> list[Target]:
        """Every goal of the workload; one is not measured where a row did not run or its measure cannot be taken."""
        targets = []
        for goal in self.workload.targets:
            value = self._compared(goal)
            note = self._why_unmeasured(goal) if value is None else ""
            name = f"{self.workload.name}: {self._title(goal.of)} / {self._title(goal.against)}, {goal.measure}"
            if goal.at_least is not None:
                targets.append(Target.at_least(name, value, goal.at_least, note))
            if goal.at_most is not None:
                targets.append(Target.at_most(name, value, goal.at_most, note))
        return targets

    def _title(self, name: str) -> str:
        return self.titles.get(name) or ROWS.get(name, name)

    def _why_unmeasured(self, goal: TargetOptions) -> str:
        for name in (goal.of, goal.against):
            if name not in self.timings:
                return f"{self._title(name)}: {self.absent.get(name, LEFT_OUT)}"
        return "; ".join(self.notes)

    def _compared(self, goal: TargetOptions) -> float | None:
        """One row's measure / the other's; None where one of them is missing."""
        if goal.measure == PEAK:
            own, other = (self.measures.get(name, {}).get(PEAK) for name in (goal.of, goal.against))
            return None if own is None or other is None else own / max(other, _LEAST_MIB)
        if goal.of not in self.timings or goal.against not in self.timings:
            return None
        first, second = self.timings[goal.of], self.timings[goal.against]
        return ratio(first, second) if goal.measure == "tokens_per_s" else ratio(second, first)
