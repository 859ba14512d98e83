import pytest

from mas.core.errors import ConfigError
from mas.observe.curves import curve


def test_one_run_is_a_line_without_a_band() -> None:
    series = curve("planner", [[{"step": 1, "planner": {"entropy": 2.0}}, {"step": 2}]], "planner/entropy")
    assert (series.name, series.xs, series.ys, series.lo, series.seeds) == ("planner", (1,), (2.0,), None, ())


def test_several_seeds_give_their_mean_their_range_and_one_line_each() -> None:
    runs = [
        [{"step": 1, "reward": 0.0}, {"step": 2, "reward": 0.5}, {"step": 3, "reward": 1.0}],
        [{"step": 1, "reward": 1.0}, {"step": 2, "reward": 0.0}],
    ]
    series = curve("team", runs, "reward")
    assert series.xs == (1, 2), "step 3 is missing in the second run"
    assert series.ys == (0.5, 0.25)
    assert (series.lo, series.hi) == ((0.0, 0.0), (1.0, 0.5))
    assert series.seeds == ((0.0, 0.5), (1.0, 0.0))


def test_the_x_axis_may_count_tokens() -> None:
    series = curve("team", [[{"step": 1, "tokens": 500, "reward": 0.5}]], "reward", x="tokens")
    assert series.xs == (500,)


def test_a_metric_that_no_run_has_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'planner/entropy'"):
        curve("x", [[{"step": 1, "planner": {"entropy": 1.0}}]], "planner/entrpy")
    with pytest.raises(ConfigError, match="No value of 'reward'"):
        curve("x", [], "reward")
