import io
import time

import pytest
from rich.console import Console

from mas.observe.progress import TrainingProgress, counting, format_number, sparkline


class Clock:
    """Seconds that pass only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def console(*, terminal: bool) -> tuple[Console, io.StringIO]:
    stream = io.StringIO()
    return Console(file=stream, force_terminal=terminal, width=100, color_system=None), stream


def test_without_a_terminal_lines_are_at_least_the_interval_apart_and_the_last_step_is_shown(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(10, "Grid", console=target, interval_s=5.0, clock=clock) as progress:
        for step in range(1, 11):
            clock.now_s += 2.0
            progress.update(step, {"reward": step / 10, "success": 0.5, "tokens": 20_000 * step}, 2.0 * (10 - step))
    lines = stream.getvalue().splitlines()
    # Due at 2 s (first), then 5 s later or more on a 2 s raster: 8 s, 14 s, and the last step at 20 s.
    assert lines == [
        "Grid: steps 0 to 10",
        "step 1/10  reward 0.100  success 0.500  tokens 20.0k  left 0:00:18",
        "step 4/10  reward 0.400  success 0.500  tokens 80.0k  left 0:00:12",
        "step 7/10  reward 0.700  success 0.500  tokens 140.0k  left 0:00:06",
        "step 10/10  reward 1.000  success 0.500  tokens 200.0k  left 0:00:00",
    ]


def test_the_last_step_is_one_line_with_what_was_measured_after_it(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(2, "Grid", console=target, clock=clock) as progress:
        for step in (1, 2):
            clock.now_s += 10.0
            progress.update(step, {"reward": 0.5}, 10.0)
        progress.update(2, {"success": 1.0}, 0.0)
    assert [line for line in stream.getvalue().splitlines() if line.startswith("step 2")] == [
        "step 2/2  reward 0.500  success 1.000  left 0:00:00"
    ]


def test_what_a_step_does_not_report_is_not_shown_from_the_step_before(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(3, "Grid", console=target, clock=clock) as progress:
        for step, measured in ((1, {"solver failures": 0.9}), (2, {})):
            clock.now_s += 10.0
            progress.update(step, {"reward": 0.5, **measured}, 10.0)
            progress.update(step, {"success": 0.25}, 10.0)
    assert stream.getvalue().splitlines()[1:] == [
        "step 1/3  reward 0.500  solver failures 0.900  left 0:00:10",
        "step 2/3  reward 0.500  success 0.250  left 0:00:10",  # success: of step 1's evaluation
    ]


def test_a_run_that_stops_early_shows_its_last_step_and_the_error_goes_on(clock: Clock) -> None:
    target, stream = console(terminal=False)

    def run() -> None:
        with TrainingProgress(10, "Grid", console=target, clock=clock) as progress:
            progress.update(1, {})
            progress.update(2, {"reward": 0.5})
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        run()
    assert stream.getvalue().splitlines()[-1].startswith("step 2/10  reward 0.500")


def test_a_resumed_run_names_its_steps_and_no_time_left_that_nobody_knows(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(100, "Grid", start=90, console=target, clock=clock) as progress:
        progress.update(91, {})
    assert stream.getvalue().splitlines() == ["Grid: steps 90 to 100", "step 91/100"]


def test_a_step_is_printed_once_though_an_evaluation_comes_after_it(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(4, "Grid", console=target, interval_s=1.0, clock=clock) as progress:
        progress.update(0, {"success": 0.1})  # the first evaluation, which is a note
        clock.now_s = 5.0
        progress.update(2, {"reward": 0.5}, 20.0)
        clock.now_s = 10.0
        progress.update(2, {"success": 0.25}, 20.0)
        clock.now_s = 15.0
        progress.update(4, {"reward": 0.75}, 0.0)
    assert stream.getvalue().splitlines() == [
        "Grid: steps 0 to 4",
        "step 2/4  reward 0.500  success 0.100  left 0:00:20",
        "step 4/4  reward 0.750  success 0.250  left 0:00:00",
    ]


def test_a_run_that_ends_early_behind_an_evaluation_prints_its_last_step_once(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(24, "Grid", console=target, clock=clock) as progress:
        progress.update(12, {"reward": 0.5}, 20.0)
        progress.update(12, {"success": 1.0}, 20.0)
        progress.note("step 12: success on held-out tasks 1.000 greedy")
    assert stream.getvalue().splitlines() == [
        "Grid: steps 0 to 24",
        "step 12/24  reward 0.500  left 0:00:20",
        "step 12: success on held-out tasks 1.000 greedy",
    ]


def test_a_phase_is_printed_only_after_a_silence_and_says_for_how_long_it_goes_on(clock: Clock) -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(10, "Grid", console=target, silence_s=20.0, clock=clock) as progress:
        progress.phase("greedy evaluation", 0, 40)
        clock.now_s = 19.0
        progress.beat()
        progress.phase("greedy evaluation", 12, 40)
        clock.now_s = 21.0
        progress.beat()
        clock.now_s = 40.0
        progress.beat()  # 19 s after the line before
        progress.phase("learning", 0, 0)
        clock.now_s = 65.0
        progress.beat()
    assert stream.getvalue().splitlines() == [
        "Grid: steps 0 to 10",
        "0 of 10 steps done; greedy evaluation 12/40, 0:00:21",
        "0 of 10 steps done; learning, 0:00:25",
    ]


def test_silence_is_broken_while_the_event_loop_is_held_up() -> None:
    target, stream = console(terminal=False)
    with TrainingProgress(10, "Grid", console=target, silence_s=0.0) as progress:
        progress.phase("learning", 0, 0)
        limit = time.monotonic() + 30
        while "learning" not in stream.getvalue():  # as a backward pass: this thread does not give way
            assert time.monotonic() < limit


def test_a_terminal_shows_the_phase_and_an_estimate_before_the_first_step() -> None:
    target, stream = console(terminal=True)
    with TrainingProgress(10, "Grid", console=target) as progress:
        progress.expect(75.0)
        progress.phase("sampled evaluation", 3, 40)
    assert "left 0:01:15" in stream.getvalue()
    assert "sampled evaluation 3/40, 0:00:00" in stream.getvalue()


def test_a_long_note_is_one_line_in_a_file_and_broken_between_words_at_a_terminal() -> None:
    text = " ".join(["evaluation"] * 20)
    for terminal, count in ((False, 1), (True, 3)):  # 219 characters; a terminal of 100 takes nine words of eleven each
        target, stream = console(terminal=terminal)
        progress = TrainingProgress(10, "Grid", console=target)
        progress.note(text)
        lines = stream.getvalue().splitlines()
        assert len(lines) == count
        assert " ".join(line.strip() for line in lines) == text


def test_a_terminal_shows_steps_reward_with_its_course_success_tokens_and_the_rest() -> None:
    target, stream = console(terminal=True)
    with TrainingProgress(4, "Grid [team]", console=target) as progress:
        progress.update(1, {"reward": 0.0, "success": 0.25})
        progress.note("checkpoint [step-1] written")
        progress.update(2, {"reward": 1.0, "tokens": 1_500_000, "planner/entropy": 1.5})
    shown = stream.getvalue()
    for text in ("Grid [team]", "2/4", "50%", "reward 1.000", "▁█", "success 0.250", "tokens 1.5M",
                 "planner/entropy 1.500", "checkpoint [step-1] written"):  # fmt: skip
        assert text in shown


def test_a_sparkline_spans_least_to_greatest() -> None:
    # 0, 1/2 and 1 of seven steps: blocks 0, 4 (3.5 rounds to even) and 7.
    assert sparkline([-1.0, 0.0, 1.0]) == "▁▅█"
    assert sparkline([2.0, 2.0]) == "▅▅"
    assert sparkline([0.0, float("nan"), float("inf"), 1.0]) == "▁·██"
    assert sparkline([float("nan")]) == "·"
    assert sparkline([]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (9999, "9999"), (12_500, "12.5k"), (3_400_000, "3.4M"), (2e9, "2.0G"), (0.5321, "0.532"),
     (0.00001, "1.0e-05"), (-0.25, "-0.250"), (0.0, "0.000"), (float("nan"), "nan"), (float("inf"), "inf")],
)  # fmt: skip
def test_numbers_are_short(value: float, text: str) -> None:
    assert format_number(value) == text


def test_what_is_counted_is_shown_at_a_terminal_and_nothing_elsewhere() -> None:
    for is_terminal in (True, False):
        target, stream = console(terminal=is_terminal)
        with counting(target) as counted:
            counted("untrained", 9, 12)
            counted("trained", 3, 12)
        shown = stream.getvalue()
        assert ("trained" in shown and "3/12" in shown) == is_terminal
        assert is_terminal or shown == ""
