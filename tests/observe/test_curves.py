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
    series = curve("team", runs, "reward", ended=[True, False])
    assert series.xs == (1, 2), "step 3 is missing in the second run, which goes on"
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


def test_a_joined_curve_is_straight_between_a_runs_points_and_level_after_the_end_of_one_that_is_over() -> None:
    runs = [
        [{"step": 0, "reward": 0.0}, {"step": 4, "reward": 1.0}],
        [{"step": 0, "reward": 0.0}, {"step": 1, "reward": 1.0}, {"step": 6, "reward": 0.5}],
    ]
    series = curve("team", runs, "reward")
    assert series.xs == (0, 1, 4, 6)
    # the second falls by 0.1 a step from step 1 on
    assert series.seeds == (pytest.approx((0.0, 0.25, 1.0, 1.0)), pytest.approx((0.0, 1.0, 0.7, 0.5)))
    assert series.ys == pytest.approx((0.0, 0.625, 0.85, 0.75))
    assert curve("team", runs, "reward", ended=[False, True]).xs == (0, 1, 4)
    with pytest.raises(ConfigError, match="that all runs have"):
        curve("team", [*runs, [{"step": 9, "reward": 0.0}]], "reward", ended=[False, True, True])


def test_an_evaluation_stands_at_the_tokens_spent_before_it() -> None:
    run: list[dict[str, float]] = [{"step": 0, "success": 0.0}, {"step": 1, "tokens": 500}, {"step": 1, "success": 0.5}]
    series = curve("team", [run], "success", x="tokens")
    assert (series.xs, series.ys) == ((0, 500), (0.0, 0.5))
    with pytest.raises(ConfigError, match="'success' over 'calls'"):
        curve("team", [run], "success", x="calls")
