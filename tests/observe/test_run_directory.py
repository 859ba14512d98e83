import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from mas.core.errors import ConfigError, RunDirectoryError
from mas.observe import files
from mas.observe.run_directory import RunDirectory, differences

CONFIG = {"steps": 3, "learner": {"learning_rate": 1e-5, "roles": ["planner", "executor"]}}

HOLD = """
import sys
from pathlib import Path
from mas.observe.run_directory import RunDirectory
RunDirectory.open(Path(sys.argv[1]), {"steps": 3}, resume=False)
print("locked", flush=True)
sys.stdin.read()
"""


def make(path: Path, config: Mapping[str, object] = CONFIG) -> None:
    RunDirectory.open(path, config, resume=False).close()


def test_a_new_run_gets_all_its_files_and_folders(tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path / "deep" / "run", CONFIG, resume=False) as run:
        assert yaml.safe_load(run.config_path.read_text()) == CONFIG
        assert run.metrics_path.read_text() == run.samples_path.read_text() == ""
        assert run.checkpoints.is_dir()
        assert run.tensorboard.is_dir()
        assert not run.is_resumed
    assert {entry.name for entry in run.path.iterdir()} == {
        ".lock", "config.yaml", "metrics.jsonl", "samples.jsonl", "checkpoints", "tensorboard",
    }  # fmt: skip


def test_an_empty_directory_may_become_a_run(tmp_path: Path) -> None:
    make(tmp_path)
    assert (tmp_path / "config.yaml").exists()


def test_a_start_killed_before_its_configuration_was_written_may_be_repeated(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("1\n")
    (tmp_path / ".config.yaml.12ab.tmp").write_text("step")
    make(tmp_path)
    assert not (tmp_path / ".config.yaml.12ab.tmp").exists()


def test_resuming_keeps_what_is_there_and_clears_leftovers_of_checkpoints(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"step":1}\n')
    (tmp_path / "checkpoints" / ".step-1.12ab.tmp").mkdir()
    with RunDirectory.open(tmp_path, CONFIG, resume=True) as run:
        assert run.is_resumed
        assert run.metrics_path.read_text() == '{"step":1}\n'
        assert list(run.checkpoints.iterdir()) == []


@pytest.mark.parametrize("below", ["", "run"])
def test_a_file_in_the_way_is_named(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunDirectoryError, match=r"file.*is a file\. Choose another path") as caught:
        make(tmp_path / "file" / below)
    assert str(tmp_path / "file") in str(caught.value)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs a file system that refuses directories")
def test_a_place_that_cannot_be_written_is_named_with_the_cause() -> None:
    with pytest.raises(RunDirectoryError, match=r"/proc/mas_run cannot be written: .+Choose a directory"):
        make(Path("/proc/mas_run"))


def test_a_path_is_tried_before_it_is_used_and_nothing_is_left_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "text").touch()
    long = "x" * 300
    wrong = {
        "file/run": "is a file",
        "full": "not empty",
        long: "cannot be written",
        f"a/b/{long}": "cannot be written",
    }
    for name, problem in wrong.items():
        with pytest.raises(RunDirectoryError, match=problem):
            RunDirectory.check(tmp_path / name, resume=False)
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        RunDirectory.holds_run(tmp_path / long)
    for name in ("deep/run", "a/../run"):
        RunDirectory.check(tmp_path / name, resume=False)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "full"}


def test_a_full_disk_is_an_error_that_releases_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", full)
        with pytest.raises(RunDirectoryError, match="No space left on device"):
            make(tmp_path / "run")
    make(tmp_path / "run")


def test_a_directory_with_content_is_refused_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(RunDirectoryError, match=r"holds thesis\.tex\)\. It holds no run: choose another run_dir"):
        make(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_directory_with_a_run_says_which_command_goes_on_with_it(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"the same command as its run's to go on .* choose another run_dir"):
        make(tmp_path)


@pytest.mark.parametrize("exists", [True, False])
def test_resuming_where_no_run_is_says_so(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "run"
    if exists:
        path.mkdir()
    with pytest.raises(RunDirectoryError, match=r"no run to resume .*without resume=True"):
        RunDirectory.open(path, CONFIG, resume=True)
    assert path.exists() == exists


def test_resuming_with_another_configuration_names_every_key_that_differs(tmp_path: Path) -> None:
    make(tmp_path)
    other = {"steps": 3, "learner": {"learning_rat": 1e-5, "roles": ["planner"]}}
    with pytest.raises(RunDirectoryError, match="another configuration") as caught:
        RunDirectory.open(tmp_path, other, resume=True)
    message = str(caught.value)
    assert "learner.roles: ['planner', 'executor'] there, ['planner'] now" in message
    assert "learner.learning_rat: not there, 1e-05 now. Did you mean 'learner.learning_rate'?" in message
    assert "steps" not in message
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == CONFIG


def test_a_failed_resume_does_not_keep_the_lock(tmp_path: Path) -> None:
    make(tmp_path)
    with pytest.raises(RunDirectoryError):
        RunDirectory.open(tmp_path, {"steps": 4}, resume=True)
    RunDirectory.open(tmp_path, CONFIG, resume=True).close()


def test_keys_that_may_differ_are_taken_over_on_resume_once_the_start_is_sure(tmp_path: Path) -> None:
    make(tmp_path)
    longer = {**CONFIG, "steps": 9}
    with RunDirectory.open(tmp_path, longer, resume=True, may_differ=("steps",)) as run:
        assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == CONFIG
        run.write_config()
    assert yaml.safe_load((tmp_path / "config.yaml").read_text()) == longer


def test_values_that_yaml_holds_differently_still_compare_equal_on_resume(tmp_path: Path) -> None:
    config = {"tuple": (1, 2), "small": 1e-7, "none": None, "empty": {}, "text": "1e-5", "nan": float("nan")}
    make(tmp_path, config)
    RunDirectory.open(tmp_path, config, resume=True).close()


def test_a_damaged_configuration_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    for damage in ("a: [", "just text", ""):
        (tmp_path / "config.yaml").write_text(damage)
        with pytest.raises(RunDirectoryError, match=r"config\.yaml"):
            RunDirectory.open(tmp_path, CONFIG, resume=True)


def test_a_value_that_yaml_cannot_hold_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_dump"):
        make(tmp_path / "run", {"where": tmp_path})
    assert not (tmp_path / "run").exists()


def test_one_and_true_and_one_point_zero_are_three_values() -> None:
    assert len(differences({"a": 1, "b": 1}, {"a": 1.0, "b": True})) == 2


def test_members_of_a_list_of_mappings_are_compared_one_by_one() -> None:
    old = {"agents": [{"name": "planner", "model": "a"}, {"name": "executor"}]}
    new = {"agents": [{"name": "planner", "model": "b"}, {"name": "executor"}]}
    assert differences(old, new) == ["agents.0.model: 'a' there, 'b' now"]


def test_a_second_process_cannot_open_the_directory_until_the_first_is_dead(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunDirectoryError, match=f"in use by process {holder.pid}.*Wait for it or stop it"):
            RunDirectory.open(tmp_path, {"steps": 3}, resume=True)
        holder.kill()
        holder.wait()
    RunDirectory.open(tmp_path, {"steps": 3}, resume=True).close()


def test_the_same_process_cannot_open_the_directory_twice(tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path, CONFIG, resume=False) as run:
        with pytest.raises(RunDirectoryError, match="in use"):
            RunDirectory.open(tmp_path, CONFIG, resume=True)
        run.close()
        RunDirectory.open(tmp_path, CONFIG, resume=True).close()


def test_a_key_that_came_later_was_as_it_usually_is(tmp_path: Path) -> None:
    usual = {"a": 1, "new": {"size": 7}, "options": {}}
    RunDirectory.open(tmp_path / "run", {"a": 1, "options": {"x": 2}}, resume=False).close()
    now = {"a": 1, "new": {"size": 7}, "options": {"x": 2}}
    RunDirectory.open(tmp_path / "run", now, resume=True, usual=usual).close()
    with pytest.raises(RunDirectoryError, match=r"new\.size: 7 there, 8 now"):
        RunDirectory.open(tmp_path / "run", now | {"new": {"size": 8}}, resume=True, usual=usual)
