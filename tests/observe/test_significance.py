"""Intervals and tests against scipy's own, and by their properties."""

from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from mas.core.errors import ConfigError
from mas.observe.significance import bonferroni, games_needed, holm, paired, welch, wilson


@given(games=st.integers(1, 500), data=st.data(), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_is_scipys_for_whole_wins(games: int, data: st.DataObject, confidence: float) -> None:
    wins = data.draw(st.integers(0, games))
    wanted = stats.binomtest(wins, games).proportion_ci(confidence, method="wilson")
    found = wilson(wins, games, confidence)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high), abs=1e-12)


# With none of 10 the upper end is z²/(10 + z²) = 3.8415/13.8415; with 5 of 10 the interval is 0.5 ± 1.96/1.38415 ·
# √(0.025 + 3.8415/400). 81 of 263: Newcombe, Statistics in Medicine 17, 1998.
@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_is_what_was_published(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert (found.low, found.high) == pytest.approx((low, high), abs=6e-5)


def test_wilson_with_draws_lies_between() -> None:
    found, less, more = wilson(5.5, 10), wilson(5, 10), wilson(6, 10)
    assert less.low < found.low < more.low
    assert less.high < found.high < more.high
    assert wilson(0, 0) == wilson(0, 0).__class__(0.0, 1.0)


@pytest.mark.parametrize(("points", "games"), [(-1, 3), (4, 3), (0.5, 0)])
def test_wilson_refuses_impossible_points(points: float, games: int) -> None:
    with pytest.raises(ConfigError, match="are not possible"):
        wilson(points, games)


def test_wilson_covers_as_often_as_it_says() -> None:
    random, inside = Random(3), 0
    for _ in range(2000):
        wins = sum(random.random() < 0.3 for _ in range(40))
        interval = wilson(wins, 40)
        inside += interval.low <= 0.3 <= interval.high
    assert inside / 2000 == pytest.approx(0.95, abs=0.02)


@given(half_width=st.sampled_from([0.02, 0.05, 0.1, 0.3]), rate=st.sampled_from([0.1, 0.5, 0.9]))
def test_games_needed_are_enough_and_one_less_is_not(half_width: float, rate: float) -> None:
    def half(games: int) -> float:
        found = wilson(rate * games, games)
        return (found.high - found.low) / 2

    games = games_needed(half_width, rate=rate)
    assert half(games) <= half_width
    assert games == 1 or half(games - 1) > half_width


def test_games_needed_for_ten_points_at_even_odds() -> None:
    assert games_needed(0.1) == 93
    with pytest.raises(ConfigError, match=r"half_width=0\.5"):
        games_needed(0.5)
    for rate in (-0.1, 1.5):
        with pytest.raises(ConfigError, match=f"rate={rate} must lie between 0 and 1"):
            games_needed(0.1, rate=rate)


def test_welch_is_scipys_with_hedges_effect() -> None:
    first, second = [1.0, 2.0, 4.0, 6.0], [0.0, 1.0, 0.5]
    found, wanted = welch(first, second), stats.ttest_ind(first, second, equal_var=False)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(wanted.confidence_interval()))
    # Pooled: (3 * 4.916667 + 2 * 0.25) / 5 = 3.05; J = 1 - 3 / 19.
    assert found.g == pytest.approx(2.75 / 3.05**0.5 * (1 - 3 / 19))


def test_welch_where_one_sample_does_not_vary() -> None:
    # t = 0.5 / sqrt((1/3) / 4) = sqrt(3); all the variance is the first sample's, so its 3 degrees of freedom count.
    found = welch([1.0, 1.0, 1.0, 0.0], [0.25] * 7)
    half = stats.t.ppf(0.975, 3) * 0.25
    assert found.p == pytest.approx(2 * stats.t.sf(2.0, 3))
    assert (found.interval.low, found.interval.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert welch([0.25] * 7, [1.0, 1.0, 1.0, 0.0]).p == found.p
    assert welch([1e-150, 0.0], [0.0, 0.0]).p == pytest.approx(0.5), "differences however small"


def test_paired_by_hand() -> None:
    # Of the 8 choices of signs of 1, 2, 4 two reach 7, four reach 5 or more.
    assert paired([1.0, 2.0, 4.0]).p == 2 / 8
    assert paired([-1.0, 2.0, 4.0]).p == 4 / 8
    assert paired([2.0] * 5).p == 2 / 32
    assert paired([2.0] * 100).p == 2.0**-99
    assert paired([0.0] * 100).p == paired([0.0]).p == paired([3.0]).p == 1.0
    with pytest.raises(ConfigError, match="no differences"):
        paired([])


def test_paired_is_students_of_many() -> None:
    random = Random(2)
    values = [random.gauss(0.3, 1) for _ in range(40)]
    found, wanted = paired(values, 0.9), stats.ttest_1samp(values, 0)
    assert found.p == pytest.approx(wanted.pvalue)
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(wanted.confidence_interval(0.9)))


@pytest.mark.parametrize("count", [3, 6, 12, 13, 40])
def test_paired_finds_differences_of_coins_no_more_often_than_it_says(count: int) -> None:
    random = Random(count)
    found = sum(paired([random.choice((-1, 0, 0, 1)) for _ in range(count)]).p <= 0.05 for _ in range(1000))
    assert found / 1000 <= 0.07


def test_welch_where_nothing_varies() -> None:
    assert (welch([1, 1], [1, 1]).p, welch([1, 1], [1, 1]).g) == (1.0, 0.0)
    assert (welch([1, 1], [0, 0]).p, welch([1, 1], [0, 0]).g) == (0.0, float("inf"))
    with pytest.raises(ConfigError, match="two of each"):
        welch([1.0], [1.0, 2.0])


def test_corrections_by_hand() -> None:
    assert bonferroni([0.01, 0.04, 0.5]) == pytest.approx([0.03, 0.12, 1.0])
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_exceeds_bonferroni(values: list[float]) -> None:
    found = holm(values)
    assert all(own <= other + 1e-12 for own, other in zip(found, bonferroni(values), strict=True))
    pairs = sorted(zip(values, found, strict=True))
    assert all(one[1] <= other[1] for one, other in pairwise(pairs) if one[0] < other[0])
