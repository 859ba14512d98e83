"""From the metrics of one or several seeds to the curves of a report."""

from collections.abc import Mapping, Sequence
from typing import Any

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.observe.metrics import flatten
from mas.observe.report_records import Series

Points = dict[float, float]


def curve(name: str, runs: Sequence[Sequence[Mapping[str, Any]]], metric: str, *, x: str = "step") -> Series:
    """Mean of one metric over the seeds, with the band from the least to the greatest and one thin line per seed.

    Only points that every seed has are drawn, so that no mean is over fewer seeds than the next.

    Args:
        name: of the line.
        runs: per seed what `read_metrics` returns.
        metric: flat name, such as `planner/entropy`.
        x: flat name of what the x axis counts.

    Raises:
        ConfigError: no run has that metric, or the seeds share no point.
    """
    points = [_points(run, metric, x) for run in runs]
    shared = sorted(set.intersection(*(set(run) for run in points))) if points else []
    if not shared:
        known = {key for run in runs for line in run for key in flatten(line)}
        raise ConfigError(f"No value of {metric!r} over {x!r} that all runs have. {did_you_mean(metric, known)}")
    seeds = tuple(tuple(run[at] for at in shared) for run in points)
    columns = list(zip(*seeds, strict=True))
    means = tuple(sum(values) / len(values) for values in columns)
    if len(seeds) == 1:
        return Series(name=name, xs=tuple(shared), ys=means)
    lo, hi = tuple(min(values) for values in columns), tuple(max(values) for values in columns)
    return Series(name=name, xs=tuple(shared), ys=means, lo=lo, hi=hi, seeds=seeds)


def _points(run: Sequence[Mapping[str, Any]], metric: str, x: str) -> Points:
    points: Points = {}
    for line in run:
        flat = flatten(line)
        at, value = flat.get(x), flat.get(metric)
        if at is not None and value is not None:
            points[at] = value
    return points
