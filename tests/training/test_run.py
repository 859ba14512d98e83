"""Training in a run directory: all is written down, and a killed run ends like one that was never killed."""

import io
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked import FORKED
from rich.console import Console

from mas.config.load import load_config
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.core.errors import CheckpointError, ConfigError, ModelError, RunDirectoryError, TrainingError
from mas.core.scenario import Scenario
from mas.graph.load import find_team
from mas.graph.plan import compile_team
from mas.observe.files import JsonLines
from mas.observe.metrics import read_metrics
from mas.roles import build_roles
from mas.runs.report import build_report
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel

SHORT = (
    "scenario=relay", "train.steps=4", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=2",
    "train.checkpoint_every=2", "train.keep_checkpoints=2", "train.sample_every=1", "algorithm.sampler.candidates=3",
)  # fmt: skip


@pytest.fixture
def short(small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]) -> Callable[..., Config]:
    """The configuration of a four-step run; its base is made already."""
    base_for("relay")
    return lambda run: load_config([*SHORT, *small_overrides, f"run_dir='{run}'"])


def train(config: Config, scenario: Scenario | None = None, *, resume: bool | None = None) -> str:
    """Train in this process and return what was printed."""
    console = Console(file=io.StringIO(), width=200)
    train_in_directory(config, scenario or build_scenario(config.scenario), console=console, resume=resume)
    text: str = console.file.getvalue()
    return text


def test_a_directory_whose_name_looks_like_markup_is_printed_as_it_is(
    tmp_path: Path, short: Callable[[Path], Config]
) -> None:
    run = tmp_path / "[red]x[" / "b]"
    config = short(run)
    for steps, told in ((1, ""), (2, f"resuming {run} at step 1")):
        printed = train(config.model_copy(update={"train": config.train.model_copy(update={"steps": steps})}))
        assert told in printed.replace("\n", "")
        assert f"The run in {run} is finished" in printed.replace("\n", "")


def adapters(run: Path) -> dict[str, bytes]:
    folder = run / "adapters"
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def measured(run: Path) -> list[dict[str, Any]]:
    """All metrics but how long things took."""
    return [
        {name: value for name, value in line.items() if name != "seconds"}
        for line in read_metrics(run / "metrics.jsonl")
    ]


def train_and_die(config: Config, what: str, number: int) -> None:
    """In a process of its own: train until the number-th write, then die by SIGKILL in the middle of it."""
    torch.set_num_threads(1)
    left = number

    def count(first: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return first(*args)

        return counted

    if what == "sync":
        os.fsync = count(os.fsync)
    else:
        JsonLines.append = count(JsonLines.append)
    train(config)


def kill(config: Config, what: str, number: int) -> int:
    """Exit code of such a process: -SIGKILL, or 0 when it came to its end first."""
    process = FORKED.Process(target=train_and_die, args=(config, what, number))
    process.start()
    process.join(60)
    assert process.exitcode is not None
    return process.exitcode


@pytest.fixture(scope="session")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> Path:
    """A run that was never killed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    base_for("relay")
    train(load_config([*SHORT, *small_overrides, f"run_dir='{run}'"]))
    return run


def test_a_run_leaves_metrics_samples_checkpoints_events_and_peft_adapters(uninterrupted: Path) -> None:
    lines = read_metrics(uninterrupted / "metrics.jsonl")
    assert [line["step"] for line in lines if "reward" in line] == [1, 2, 3, 4]
    for kind in ("greedy", "sampled"):
        assert [line["step"] for line in lines if kind in line.get("eval", {})] == [0, 2, 4]
    samples = [json.loads(line) for line in (uninterrupted / "samples.jsonl").read_text().splitlines()]
    assert {sample["step"] for sample in samples if sample["source"] == "training"} == {1, 2, 3, 4}
    shown = [[s["task"] for s in samples if s["source"] == "greedy" and s["step"] == step] for step in (0, 4)]
    assert shown == [["eval-0", "eval-1", "eval-2"]] * 2
    assert [path.name for path in sorted((uninterrupted / "checkpoints").iterdir())] == ["step-000002", "step-000004"]
    assert list((uninterrupted / "tensorboard").glob("events*"))
    assert set(adapters(uninterrupted)) == {f"{role}/adapter_model.safetensors" for role in ("planner", "executor")}


def test_the_report_of_a_run_shows_the_world_and_reproduces_it_in_a_new_directory(uninterrupted: Path) -> None:
    """As `mas run` prints it: the world at the beginning, and after each turn with what the team did."""
    config = load_run_config(uninterrupted)
    scenario = build_scenario(config.scenario)
    spec = find_team(scenario, config.algorithm.team)
    report = build_report(uninterrupted, config, compile_team(spec, build_roles(spec)))
    environment = scenario.environment()
    environment.reset(scenario.task("eval", 0))
    (pair,) = (pair for pair in report.conversations if pair.title == "task eval-0")
    for talk in (pair.before, pair.after):
        assert [scene.turn for scene in talk.scenes] == [-1, *dict.fromkeys(line.turn for line in talk.lines)]
        assert talk.scenes[0].world == environment.render() != ""
        assert all(scene.event.startswith(f"turn {scene.turn}: the team ") for scene in talk.scenes[1:])
    assert report.roles == {"planner": "planner", "executor": "executor"}
    again = load_config(shlex.split(report.command)[2:])
    assert again.run_dir == f"{uninterrupted}-again"
    assert again.model_copy(update={"run_dir": config.run_dir}).as_stored() == config


def test_exported_adapters_are_those_of_the_last_checkpoint(uninterrupted: Path) -> None:
    last = uninterrupted / "checkpoints" / "step-000004" / "adapters"
    for name, content in adapters(uninterrupted).items():
        assert (last / name).read_bytes() == content


MOMENTS = {
    "while the configuration is written": ("sync", 1),
    "before the first line": ("line", 1),
    "in the first evaluation": ("line", 5),
    "in the first checkpoint": ("sync", 7),
    "after the first checkpoint": ("sync", 16),
    "in the third step": ("line", 22),
    "in the last checkpoint": ("sync", 22),
    "in the export of the first adapter": ("sync", 34),
    "between the exports": ("sync", 37),
}
"""The number of the synced file or of the appended line, before which the process dies."""


@pytest.mark.matrix("moment", MOMENTS, default=["in the third step", "in the last checkpoint", "between the exports"])
def test_a_run_killed_at_any_moment_and_started_again_ends_like_one_never_killed(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config], moment: str
) -> None:
    config = short(tmp_path / "run")
    assert kill(config, *MOMENTS[moment]) == -signal.SIGKILL
    train(config)
    assert adapters(tmp_path / "run") == adapters(uninterrupted)
    assert measured(tmp_path / "run") == measured(uninterrupted)
    assert (tmp_path / "run" / "samples.jsonl").read_bytes() == (uninterrupted / "samples.jsonl").read_bytes()
    assert not list((tmp_path / "run").rglob(".*.tmp"))


def test_a_run_killed_again_and_again_comes_to_the_same_end(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config]
) -> None:
    config = short(tmp_path / "run")
    for what, number in (("line", 5), ("line", 22), ("sync", 5), ("line", 8)):
        assert kill(config, what, number) == -signal.SIGKILL
    train(config)
    assert adapters(tmp_path / "run") == adapters(uninterrupted)
    assert measured(tmp_path / "run") == measured(uninterrupted)


def test_a_line_torn_by_a_kill_does_not_hinder_resuming(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config]
) -> None:
    config = short(tmp_path / "run")
    kill(config, "line", 16)
    for name in ("metrics.jsonl", "samples.jsonl"):
        with (tmp_path / "run" / name).open("ab") as file:
            file.write(b'{"step": 3, "rew')
    train(config)
    assert measured(tmp_path / "run") == measured(uninterrupted)


def test_a_finished_run_started_again_says_so_and_changes_nothing(tmp_path: Path, short: Callable[..., Config]) -> None:
    config = short(tmp_path / "run")
    assert "is finished: 4 steps done" in train(config)
    before = adapters(tmp_path / "run"), measured(tmp_path / "run")
    assert "was finished already: 4 steps done" in train(config)
    assert (adapters(tmp_path / "run"), measured(tmp_path / "run")) == before


def test_a_finished_run_with_more_steps_goes_on_like_one_that_had_them_from_the_start(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config]
) -> None:
    config = short(tmp_path / "run")
    train(config.model_copy(update={"train": config.train.model_copy(update={"steps": 2})}))
    assert adapters(tmp_path / "run") != adapters(uninterrupted)
    train(config)
    assert adapters(tmp_path / "run") == adapters(uninterrupted)


def test_another_configuration_is_refused_and_the_differing_keys_are_named(
    uninterrupted: Path, short: Callable[..., Config]
) -> None:
    config = short(uninterrupted)
    other = config.model_copy(update={"learner": config.learner.model_copy(update={"lr": 0.5})})
    with pytest.raises(RunDirectoryError, match=r"learner\.lr: 0\.005 there, 0\.5 now"):
        train(other)
    with pytest.raises(RunDirectoryError, match="not empty"):
        train(config, resume=False)


def test_resuming_where_no_run_is_and_unusable_directories_are_errors_before_the_base_is_made(
    tmp_path: Path, short: Callable[..., Config], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.runs.train.open_base", None)  # nobody comes so far
    with pytest.raises(RunDirectoryError, match="holds no run to resume"):
        train(short(tmp_path / "run"), resume=True)
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(RunDirectoryError, match="is a file"):
            train(short(path))
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "thesis.txt").touch()
    with pytest.raises(RunDirectoryError, match=r"not empty \(it holds thesis\.txt\)"):
        train(short(tmp_path / "theirs"))
    with pytest.raises(RunDirectoryError, match="cannot be written"):
        train(short("/proc/run"))


def test_an_unknown_team_is_an_error_before_anything_is_made(tmp_path: Path, short: Callable[..., Config]) -> None:
    config = short(tmp_path / "run")
    config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"team": "sollo"})})
    with pytest.raises(ConfigError, match="Did you mean 'solo'"):
        train(config)
    assert not (tmp_path / "run").exists()


def test_a_base_that_is_no_model_directory_is_an_error_that_says_what_is_needed(
    tmp_path: Path, short: Callable[..., Config]
) -> None:
    (tmp_path / "empty").mkdir()
    config = short(tmp_path / "run")
    config = config.model_copy(update={"model": config.model.model_copy(update={"path": str(tmp_path / "empty")})})
    with pytest.raises(ModelError, match=r"has no config\.json"):
        train(config)


def test_a_corrupt_checkpoint_is_an_error_that_says_which_file_and_what_to_do(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config]
) -> None:
    config = short(shutil.copytree(uninterrupted, tmp_path / "run"))
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000004"
    weights = checkpoint / "adapters" / "planner" / "adapter_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"step-000004 is corrupt: adapters/planner/adapter_model.*--from 2"):
        train(config)
    for path in sorted(checkpoint.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    checkpoint.rmdir()
    train(config)
    assert adapters(tmp_path / "run") == adapters(uninterrupted)
    assert measured(tmp_path / "run") == measured(uninterrupted)


class Altered:
    """A scenario with some of its attributes replaced."""

    def __init__(self, scenario: Scenario, changes: dict[str, Any]) -> None:
        self._scenario, self._changes = scenario, changes

    def __getattr__(self, name: str) -> Any:
        return self._changes[name] if name in self._changes else getattr(self._scenario, name)


def test_output_that_never_parses_is_recorded_and_counted_and_the_run_completes(
    tmp_path: Path, short: Callable[..., Config]
) -> None:
    config = short(tmp_path / "run")
    scenario = build_scenario(config.scenario)
    team = scenario.teams["team"]
    planner = team.roles["planner"].model_copy(update={"pattern": "never this", "choices": ()})
    odd = team.model_copy(update={"roles": {**team.roles, "planner": planner}})
    train(config, Altered(scenario, {"teams": {"team": odd}}))
    steps = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "reward" in line]
    assert len(steps) == 4
    assert {line["roles"]["planner"]["failures"] for line in steps} == {1.0}
    samples = [json.loads(line) for line in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    said = [line for sample in samples for line in sample["lines"] if line["agent"] == "planner"]
    assert said
    assert all("never this" in line["failure"] for line in said)


def test_an_error_in_the_middle_leaves_the_directory_free_to_be_used_again(
    uninterrupted: Path, tmp_path: Path, short: Callable[..., Config]
) -> None:
    def broken() -> None:
        raise TrainingError("the world is broken")

    config = short(tmp_path / "run")
    with pytest.raises(TrainingError, match="the world is broken"):
        train(config, Altered(build_scenario(config.scenario), {"environment": broken}))
    train(config)
    assert adapters(tmp_path / "run") == adapters(uninterrupted)
