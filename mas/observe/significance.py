"""How sure results are: intervals of rates, tests of differences, corrections for many tests, effect sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, copysign, fsum, inf, sqrt
from statistics import NormalDist, fmean, variance

import numpy as np

from mas.core.errors import ConfigError

EXACT = 12
"""Differences of which `paired` tries all signs."""


@dataclass(frozen=True, slots=True)
class Interval:
    """`low` to `high`, both inclusive."""

    low: float
    high: float


def wilson(points: float, games: int, confidence: float = 0.95) -> Interval:
    """Wilson's score interval of a rate (Wilson 1927), 0 to 1 where nothing was played.

    Args:
        points: wins, a draw counts half; draws vary less than wins and losses, so with them the interval is too wide
            rather than too narrow.
        games: played.

    Raises:
        ConfigError: more points than games, or a confidence outside of 0 to 1.
    """
    if not 0 <= points <= games:
        raise ConfigError(f"{points} points of {games} games are not possible: a game is worth 0 to 1 points")
    if games == 0:
        return Interval(0.0, 1.0)
    z = _z(confidence)
    rate, share = points / games, z * z / games
    middle = (rate + share / 2) / (1 + share)
    half = z / (1 + share) * sqrt(rate * (1 - rate) / games + share / (4 * games))
    # at the ends exactly, which rounding would miss
    return Interval(max(0.0, middle - half) if points else 0.0, min(1.0, middle + half) if points < games else 1.0)


def mean_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Student's interval of a mean; all there is where fewer than two values say nothing of their spread.

    Raises:
        ConfigError: a confidence outside of 0 to 1.
    """
    _z(confidence)  # refuses what is no confidence
    if len(values) < 2:
        return Interval(-inf, inf)
    from scipy import stats

    half = float(stats.t.ppf((1 + confidence) / 2, len(values) - 1)) * sqrt(variance(values) / len(values))
    return Interval(fmean(values) - half, fmean(values) + half)


def games_needed(half_width: float, confidence: float = 0.95, rate: float = 0.5) -> int:
    """Games after which Wilson's interval reaches no further than `half_width` to either side of its middle.

    Args:
        half_width: more than 0 and less than 0.5.
        rate: the expected share of points, 0 to 1; 0.5 needs the most.

    Raises:
        ConfigError: an argument is out of its bounds.
    """
    if not 0 < half_width < 0.5:
        raise ConfigError(f"half_width={half_width} must lie between 0 and 0.5")
    if not 0 <= rate <= 1:
        raise ConfigError(f"rate={rate} must lie between 0 and 1")
    low, high = 1, ceil((_z(confidence) / half_width) ** 2) + 1
    while low < high:
        tried = (low + high) // 2
        found = wilson(rate * tried, tried, confidence)
        low, high = (low, tried) if (found.high - found.low) / 2 <= half_width else (tried + 1, high)
    return low


@dataclass(frozen=True, slots=True)
class Difference:
    """`mean` of the first less that of the second, its `interval`, the two-sided `p`, and Hedges' g, the difference in
    standard deviations, corrected for small samples (Hedges 1981); infinite where nothing varies."""

    mean: float
    interval: Interval
    p: float
    g: float


def welch(first: Sequence[float], second: Sequence[float], confidence: float = 0.95) -> Difference:
    """Welch's t test of two samples of unequal variance; where neither varies, p is 1 or 0 and g is 0 or infinite.

    Raises:
        ConfigError: a sample of fewer than two values.
    """
    if min(len(first), len(second)) < 2:
        raise ConfigError(f"samples of {len(first)} and {len(second)} values: a test needs two of each at least")
    mean = fmean(first) - fmean(second)
    spread = (variance(first), variance(second))
    if not any(spread):
        far = float("inf") if mean > 0 else -float("inf")
        return Difference(mean, Interval(mean, mean), float(mean == 0), far if mean else 0.0)
    parts = spread[0] / len(first), spread[1] / len(second)
    error = sqrt(sum(parts))
    share = parts[0] / sum(parts)
    freedom = 1 / (share**2 / (len(first) - 1) + (1 - share) ** 2 / (len(second) - 1))
    return Difference(mean, *_student(mean, error, freedom, confidence), _hedges(first, second, mean))


def paired(values: Sequence[float], confidence: float = 0.95) -> Difference:
    """Whether differences that belong together, one of each deal, have a mean of 0.

    p is that of all ways to turn the differences' signs, of up to 12 differences (exact), and Student's for more, but
    never below what turning signs can reach, 2 / 2^n: differences that are all equal are no certainty. The interval is
    Student's, g the mean in standard deviations, corrected for small samples.

    Raises:
        ConfigError: no values.
    """
    if not values:
        raise ConfigError("no differences: a test needs one at least")
    count, mean = len(values), fmean(values)
    spread = sqrt(variance(values)) if count > 1 else 0.0
    if spread:
        interval, p = _student(mean, spread / sqrt(count), count - 1, confidence)
        g = mean / spread * (1 - 3 / (4 * (count - 1) - 1))
    else:
        interval = Interval(mean, mean) if count > 1 else Interval(-inf, inf)
        p, g = (0.0, copysign(inf, mean)) if mean else (1.0, 0.0)
    return Difference(mean, interval, _turned(values) if count <= EXACT else max(p, 2.0 ** (1 - count)), g)


def _turned(values: Sequence[float]) -> float:
    """The share of all choices of signs whose sum is as far from 0 as that of the values."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return float((np.abs(sums) >= abs(fsum(values)) - 1e-9 * max(map(abs, values))).mean())


def _student(mean: float, error: float, freedom: float, confidence: float) -> tuple[Interval, float]:
    from scipy import stats

    _z(confidence)
    half = float(stats.t.ppf((1 + confidence) / 2, freedom)) * error
    return Interval(mean - half, mean + half), float(2 * stats.t.sf(abs(mean) / error, freedom))


def _hedges(first: Sequence[float], second: Sequence[float], mean: float) -> float:
    freedom = len(first) + len(second) - 2
    pooled = ((len(first) - 1) * variance(first) + (len(second) - 1) * variance(second)) / freedom
    return mean / sqrt(pooled) * (1 - 3 / (4 * freedom - 1))


def bonferroni(values: Sequence[float]) -> list[float]:
    """p values of a family of tests, each times their number, 1 at most: simpler than Holm's, and never smaller."""
    return [min(1.0, value * len(values)) for value in values]


def holm(values: Sequence[float]) -> list[float]:
    """p values of a family of tests by Holm's step-down procedure (Holm 1979): never above Bonferroni's."""
    found, reached = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        reached = max(reached, min(1.0, values[index] * (len(values) - rank)))
        found[index] = reached
    return found


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence={confidence} must lie between 0 and 1")
    return NormalDist().inv_cdf((1 + confidence) / 2)
