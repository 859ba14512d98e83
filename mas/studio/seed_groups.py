"""Runs that differ in nothing but their seed: which of the chosen ones belong together, their mean and its spread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from mas.config.load import leaves
from mas.studio.metric_columns import MetricColumns
from mas.studio.runs import StudioRun

_SEED = "train.seed"
_OTHER = ("run_dir", _SEED)
"""Keys of a configuration that may differ within a group."""


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Runs of one configuration, each with another seed; or a single run."""

    runs: tuple[StudioRun, ...]

    @property
    def name(self) -> str:
        """Of a single run its own; else what the names begin with, and the number of seeds."""
        names = [run.name for run in self.runs]
        if len(names) == 1:
            return names[0]
        same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
        begin = "".join(letters[0] for letters in same).rstrip("-_ ./=0123456789")
        return f"{begin or names[0]}, {len(names)} seeds"

    @property
    def seeds(self) -> str:
        """The seeds, in the order of the runs."""
        return ", ".join(str(run.option(_SEED)) for run in self.runs)


def seed_groups(runs: Sequence[StudioRun]) -> list[SeedGroup]:
    """The groups in the order of their first runs. A run with a seed that its group has already begins another one: it
    is the same experiment twice, and would make the spread too narrow."""
    groups: dict[tuple[str, int], list[StudioRun]] = {}
    times: dict[tuple[str, str], int] = {}
    for run in runs:
        config = {key: value for key, value in leaves(dict(run.config)) if key not in _OTHER}
        text = repr(sorted(config.items())) if run.config else run.key
        seed = (text, str(run.option(_SEED)))
        times[seed] = times.get(seed, 0) + 1
        groups.setdefault((text, times[seed]), []).append(run)
    return [SeedGroup(tuple(group)) for group in groups.values()]


Pairs = list[tuple[float, float]]


def mean_line(
    columns: Sequence[MetricColumns], metric: str, tokens: Sequence[Mapping[int, float]] | None
) -> tuple[Pairs, Pairs]:
    """The mean of a metric at the steps at which every run has a value: N points, and of each the least and the
    greatest value of a single run.

    Args:
        tokens: of each run, step -> tokens spent by then: the place of a point is their mean. None: it is the step.
    """
    values = [dict(one.points(metric)) for one in columns]
    steps = sorted(set(values[0]).intersection(*values[1:]))
    rows = [[one[step] for one in values] for step in steps]
    places = [float(step) if tokens is None else _mean([spent[step] for spent in tokens]) for step in steps]
    points = [(place, _mean(row)) for place, row in zip(places, rows, strict=True)]
    return points, [(min(row), max(row)) for row in rows]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
