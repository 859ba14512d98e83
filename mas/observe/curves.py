"""From the metrics of one or several seeds to the curves of a report."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.observe.metrics import flatten
from mas.observe.report_records import Series

Points = dict[float, float]


def curve(
    name: str,
    runs: Sequence[Sequence[Mapping[str, Any]]],
    metric: str,
    *,
    ended: Sequence[bool] | None = None,
    x: str = "step",
) -> Series:
    """Mean of one metric over the seeds, with the band from the least to the greatest and one thin line per seed.

    All points of all runs count, also where their lengths and points differ, such as those over tokens. Between two
    points of a run its line is straight, and after the last one of a run that has ended it is level: what was trained
    stays as it is. Nothing is drawn before all runs have begun, nor after the last point of one that goes on.

    Args:
        name: of the line.
        runs: per seed what `read_metrics` returns.
        metric: flat name, such as `planner/entropy`.
        ended: per run whether nothing will come after its last point; None: of all.
        x: flat name of what the x axis counts.

    Raises:
        ConfigError: no run has that metric, or they have no stretch in common.
    """
    points = [_points(run, metric, x) for run in runs]
    if not points or not all(points):
        raise _no_points(runs, metric, x)
    first = max(min(run) for run in points)
    going = [] if ended is None else [max(run) for run, over in zip(points, ended, strict=True) if not over]
    last = min(going, default=math.inf)
    xs = sorted({at for run in points for at in run if first <= at <= last})
    if not xs:
        raise _no_points(runs, metric, x)
    return _series(name, xs, [[_between(run, at) for at in xs] for run in points])


def _series(name: str, xs: Sequence[float], seeds: Sequence[Sequence[float]]) -> Series:
    columns = list(zip(*seeds, strict=True))
    means = tuple(sum(values) / len(values) for values in columns)
    if len(seeds) == 1:
        return Series(name=name, xs=tuple(xs), ys=means)
    lo, hi = tuple(min(values) for values in columns), tuple(max(values) for values in columns)
    return Series(name=name, xs=tuple(xs), ys=means, lo=lo, hi=hi, seeds=tuple(tuple(seed) for seed in seeds))


def _between(run: Points, at: float) -> float:
    """The value at a point, on the straight line between the nearest two, or the last one after all."""
    if at in run:
        return run[at]
    before = max(x for x in run if x < at)
    after = min((x for x in run if x > at), default=None)
    if after is None:
        return run[before]
    share = (at - before) / (after - before)
    return run[before] * (1 - share) + run[after] * share


def _points(run: Sequence[Mapping[str, Any]], metric: str, x: str) -> Points:
    """A line without the x, as of an evaluation, stands at the last one before it; at 0 before the first."""
    points: Points = {}
    at, is_counted = 0.0, False
    for line in run:
        flat = flatten(line)
        known, value = flat.get(x), flat.get(metric)
        if known is not None:
            at, is_counted = known, True
        if value is not None:
            points[at] = value
    return points if is_counted else {}


def _no_points(runs: Sequence[Sequence[Mapping[str, Any]]], metric: str, x: str) -> ConfigError:
    known = {key for run in runs for line in run for key in flatten(line)}
    beside = {key for key in known if key.partition("/")[0] == metric.partition("/")[0]}  # of all there are a hundred
    return ConfigError(f"No value of {metric!r} over {x!r} that all runs have. {did_you_mean(metric, beside or known)}")
