"""The time that a training still takes, and where it went."""

import pytest

from mas.observe.durations import TimeLeft, clock_time, rough_time, seconds_spent, shares_text


def test_what_is_left_is_unknown_until_a_step_is_expected_or_measured() -> None:
    left = TimeLeft(10, eval_every=5)
    assert left.seconds(0) is None
    left.expect(step_s=2.0, evaluation_s=3.0)
    # Ten steps, and evaluations after steps 5 and 10.
    assert left.seconds(0) == 10 * 2.0 + 2 * 3.0


def test_measured_steps_and_evaluations_replace_what_was_expected() -> None:
    left = TimeLeft(10, eval_every=5)
    left.expect(step_s=100.0, evaluation_s=100.0)
    left.on_evaluation(1.0)
    left.on_step(4.0, tokens=50)
    left.on_step(2.0, tokens=90)
    left.expect(step_s=100.0, evaluation_s=100.0)
    # Steps 3 to 10 at a mean of 3 s, evaluations after 5 and 10.
    assert left.seconds(2) == 8 * 3.0 + 2 * 1.0
    assert left.seconds(10) == 0.0


@pytest.mark.parametrize(
    ("every", "step", "left"),
    [(4, 0, 3), (4, 4, 2), (4, 8, 1), (4, 10, 0), (5, 0, 2), (0, 0, 1), (0, 10, 0)],  # of ten steps: 4, 8, 10; 5, 10
)
def test_evaluations_are_due_every_so_many_steps_and_once_at_the_end(every: int, step: int, left: int) -> None:
    assert TimeLeft(10, eval_every=every).evaluations(step) == left


def test_a_token_budget_ends_training_where_steps_do_not() -> None:
    left = TimeLeft(1000, eval_every=0, token_budget=500)
    left.on_step(2.0, tokens=100)
    # 400 tokens are left, at 100 a step.
    assert left.seconds(1) == 4 * 2.0
    left.on_step(2.0, tokens=520)
    assert left.seconds(2) == 0.0


def test_tokens_of_a_warm_start_are_spent_but_no_step_costs_them() -> None:
    left = TimeLeft(10, 0, token_budget=1300)
    left.begin(1000)
    left.on_step(2.0, 1100)
    # 200 tokens are left at 100 a step, 2 s each.
    assert left.seconds(1) == 4.0


def test_only_the_last_twenty_steps_count() -> None:
    left = TimeLeft(30, eval_every=0)
    for step in range(1, 6):
        left.on_step(100.0, tokens=step)
    for step in range(6, 26):
        left.on_step(1.0, tokens=step)
    assert left.seconds(25) == 5.0


def test_times_are_as_exact_as_they_deserve() -> None:
    assert [clock_time(one) for one in (None, float("inf"), 59.9, 3723.0)] == [*["unknown"] * 2, "0:00:59", "1:02:03"]
    assert [rough_time(one) for one in (0.2, 89.5, 90.0, 5399.0, 5400.0)] == [
        "1 s", "90 s", "2 min", "1 h 30 min", "1 h 30 min",
    ]  # fmt: skip


def test_shares_add_up_to_one_with_the_environment_taken_out_of_sampling() -> None:
    lines = [
        {"step": 0, "seconds": {"evaluate": {"greedy": 5.0}}},
        {"step": 0, "seconds": {"evaluate": {"sampled": 5.0}}},
        {"step": 1, "seconds": {"sample": 40.0, "environment": 10.0, "learn": 45.0, "publish": 5.0}},
        {"step": 2, "reward": 0.0},
    ]
    assert seconds_spent(lines) == {
        "sampling": 30.0, "environment": 10.0, "learning": 45.0, "publishing": 5.0, "evaluation": 10.0,
    }  # fmt: skip
    assert shares_text(lines) == (
        "0:01:40: sampling 30 %, environment 10 %, learning 45 %, publishing 5 %, evaluation 10 %"
    )
    assert shares_text([{"step": 1, "reward": 0.0}]) == ""


def test_runs_of_earlier_versions_have_no_seconds_in_environments() -> None:
    assert seconds_spent([{"seconds": {"sample": 3.0, "learn": 1.0, "publish": 0.0}}])["sampling"] == 3.0
