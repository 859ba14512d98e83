import math
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from mas.core.errors import RunDirectoryError
from mas.observe.files import JsonLines, read_lines
from mas.observe.metrics import MetricsLog, flatten, read_metrics


def scalars(directory: Path, name: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(directory)).Reload()
    return [(event.step, event.value) for event in events.Scalars(name)]


def test_every_step_is_one_line_that_can_be_read_while_the_log_is_open(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(1, {"reward": 0.5, "planner": {"entropy": 1.25, "turns": 4}})
        assert path.read_text() == '{"step":1,"reward":0.5,"planner":{"entropy":1.25,"turns":4}}\n'
        log.append(2, {"reward": None})
        assert [line["step"] for line in read_metrics(path)] == [1, 2]
    assert read_metrics(path)[1] == {"step": 2, "reward": None}


def test_a_diverged_loss_stays_nan_in_a_file_that_is_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.append(1, {"loss": math.nan, "planner": {"ratio": math.inf, "low": -math.inf}})
    assert path.read_text() == '{"step":1,"loss":"nan","planner":{"ratio":"inf","low":"-inf"}}\n'
    line = read_metrics(path)[0]
    assert math.isnan(line["loss"])
    assert line["planner"] == {"ratio": math.inf, "low": -math.inf}


def test_a_line_torn_by_a_kill_is_left_out_and_cut_off_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"reward":0.5}\n{"step":2,"rew')
    assert read_metrics(path) == [{"step": 1, "reward": 0.5}]
    with MetricsLog(path) as log:
        log.append(2, {"reward": 0.75})
    assert path.read_text() == '{"step":1,"reward":0.5}\n{"step":2,"reward":0.75}\n'


def test_a_line_that_only_lacks_its_line_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1,"reward":0.5}')
    with MetricsLog(path) as log:
        log.append(2, {"reward": 0.75})
    assert [line["step"] for line in read_metrics(path)] == [1, 2]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step":1}\n{"st\n{"step":3}\n')
    with pytest.raises(RunDirectoryError, match=r"Line 2 of .*metrics\.jsonl is damaged"):
        read_metrics(path)
    path.write_text('{"reward":1}\n')
    with pytest.raises(RunDirectoryError, match="no integer 'step'"):
        read_metrics(path)
    path.write_text('{"a":' * 100_000 + "\n" + '{"step":1}\n')
    with pytest.raises(RunDirectoryError, match=r"Line 1 of .*metrics\.jsonl is damaged"):
        read_metrics(path)


def test_a_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=f"{tmp_path} cannot be read: Is a directory"):
        read_metrics(tmp_path)


def test_steps_after_the_checkpoint_are_dropped_and_the_log_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in range(1, 6):
            log.append(step, {"reward": step / 10})
    with MetricsLog(path) as log:
        assert log.truncate_after(3) == 2
        log.append(4, {"reward": 9.0})
    assert [(line["step"], line["reward"]) for line in read_metrics(path)] == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 9.0)]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_truncating_to_before_the_first_step_empties_the_log(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.append(1, {"reward": 1.0})
        assert log.truncate_after(0) == 1
        log.append(1, {"reward": 2.0})
    assert read_metrics(tmp_path / "m") == [{"step": 1, "reward": 2.0}]


def test_a_step_that_is_logged_already_is_refused_also_by_a_second_log(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.append(2, {"reward": 1.0})
    with MetricsLog(tmp_path / "m") as log, pytest.raises(RunDirectoryError, match=r"Step 2 .*truncate_after"):
        log.append(2, {"reward": 1.0})


@pytest.mark.parametrize(
    ("metrics", "error", "text"),
    [
        ({"planner": {"loss": "0.1"}}, TypeError, "'planner/loss' is a str"),
        ({"planner/loss": 0.1}, ValueError, "nest mappings"),
        ({"": 0.1}, ValueError, "no metric name"),
        ({"step": 1.0}, ValueError, "'step'"),
    ],
)
def test_a_metric_that_cannot_be_kept_is_refused_and_writes_nothing(
    tmp_path: Path, metrics: dict[str, object], error: type[Exception], text: str
) -> None:
    with MetricsLog(tmp_path / "m") as log:
        with pytest.raises(error, match=text):
            log.append(1, metrics)
        log.append(1, {"reward": 1.0})
    assert len(read_metrics(tmp_path / "m")) == 1


def test_nested_names_are_flat_for_tensorboard() -> None:
    assert flatten({"a": 1, "planner": {"pool": {"entropy": 0.5}, "none": None}}) == {
        "a": 1, "planner/pool/entropy": 0.5, "planner/none": None,
    }  # fmt: skip


def test_tensorboard_shows_the_scalars_while_the_run_is_alive(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
        log.append(1, {"planner": {"entropy": 0.5}, "absent": None})
        log.append(2, {"planner": {"entropy": 0.25}})
        assert scalars(tmp_path / "tensorboard", "planner/entropy") == [(1, 0.5), (2, 0.25)]
        assert EventAccumulator(str(tmp_path / "tensorboard")).Reload().Tags()["scalars"] == ["planner/entropy"]


def test_a_clock_that_was_set_back_delays_nothing(tmp_path: Path) -> None:
    later = int(time.time()) + 86_400
    with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
        log.append(1, {"a": 0.5})
    (before,) = (tmp_path / "tensorboard").iterdir()
    before.rename(before.with_name(re.sub(r"tfevents\.\d+", f"tfevents.{later}", before.name)))
    with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
        log.append(2, {"a": 0.25})
    names = sorted(path.name for path in (tmp_path / "tensorboard").iterdir())
    assert [name.split(".")[3] for name in names] == [str(later), str(later + 1)]
    assert scalars(tmp_path / "tensorboard", "a") == [(1, 0.5), (2, 0.25)]


def test_tensorboard_hides_the_steps_that_a_killed_run_did_after_its_checkpoint(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
        for step in (1, 2, 3, 4):
            log.append(step, {"reward": 0.5})
    with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
        log.truncate_after(2)
        log.append(3, {"reward": 0.75})
    assert scalars(tmp_path / "tensorboard", "reward") == [(1, 0.5), (2, 0.5), (3, 0.75)]


def test_closing_twice_is_fine_and_leaves_no_thread(tmp_path: Path) -> None:
    log = MetricsLog(tmp_path / "m", tmp_path / "tensorboard")
    log.close()
    log.close()


def test_many_samples_share_a_step_and_are_dropped_with_it(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "samples.jsonl")
    for step in (1, 1, 2, 2):
        lines.append(step, {"text": "a\nb", "ids": (1, 2)})
    assert lines.truncate_after(1) == 2
    lines.append(2, {"text": "again"})
    lines.close()
    assert [line["step"] for line in read_lines(tmp_path / "samples.jsonl")] == [1, 1, 2]
    assert read_lines(tmp_path / "samples.jsonl")[0] == {"step": 1, "text": "a\nb", "ids": [1, 2]}


def test_a_missing_file_has_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "absent") == []


def test_logging_loads_neither_torch_nor_tensorflow() -> None:
    code = "import sys, mas.observe.metrics; print(sorted({'torch', 'tensorflow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_step_may_have_a_second_line_with_other_metrics_but_none_twice(tmp_path: Path) -> None:
    with MetricsLog(tmp_path / "m") as log:
        log.append(2, {"reward": 1.0})
        log.append(2, {"eval": {"success": 0.5}})
    with MetricsLog(tmp_path / "m") as log, pytest.raises(RunDirectoryError, match=r"has \['eval/success'\] already"):
        log.append(2, {"eval": {"success": 0.5}})
    assert [line["step"] for line in read_metrics(tmp_path / "m")] == [2, 2]


def test_a_new_event_file_is_behind_those_of_the_same_second(tmp_path: Path) -> None:
    for _ in range(2):
        with MetricsLog(tmp_path / "m", tmp_path / "tensorboard") as log:
            log.truncate_after(0)
            log.append(1, {"reward": 0.5})
    seconds = sorted(int(path.name.split(".")[3]) for path in (tmp_path / "tensorboard").iterdir())
    assert len(set(seconds)) == 2
