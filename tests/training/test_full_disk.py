"""A full disk while training, a corrupt checkpoint, a refused start: one sentence each, and nothing half written."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mixed import mixed
from rich.console import Console

from mas.config.load import load_config
from mas.core.errors import CheckpointError, ConfigError, EngineError, MasError, RunDirectoryError
from mas.graph.load import load_team
from mas.observe.metrics import read_metrics
from mas.observe.run_directory import RunDirectory
from mas.runs import train as running
from mas.runs.resolve import configured_scenario
from mas.training.adapters import TrainableAdapters
from mas.training.checkpoint import checkpoint_steps, verify_checkpoint

SHORT = (
    "scenario=relay", "train.steps=3", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0",
    "train.checkpoint_every=1", "algorithm.sampler.candidates=2", "train.sample_every=1", "train.keep_checkpoints=3",
)  # fmt: skip


@pytest.fixture
def train(tmp_path: Path, small_overrides: tuple[str, ...], base_for: Any) -> Callable[..., Any]:
    base_for("relay")

    def trained(*more: str, from_step: int | None = None) -> Any:
        config = load_config([*SHORT, *small_overrides, f"run_dir={tmp_path / 'run'}", *more])
        return running.train_in_directory(
            config, configured_scenario(config), console=Console(quiet=True), from_step=from_step
        )

    return trained


class FullDisk:
    """Lets so many bytes be written below a directory, then none: as `ENOSPC` does, a part of the last write too."""

    def __init__(self, below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left: int | None = None
        self._below, self._open = below, Path.open
        fdopen = os.fdopen
        monkeypatch.setattr(Path, "open", lambda path, *a, **k: self._limited(self._open(path, *a, **k), path))
        monkeypatch.setattr(os, "fdopen", lambda fd, *a, **k: self._limited(fdopen(fd, *a, **k), f"/proc/self/fd/{fd}"))

    def _limited(self, file: Any, path: Any) -> Any:
        if not Path(path).resolve().is_relative_to(self._below) or "b" not in getattr(file, "mode", ""):
            return file
        disk, write = self, file.write

        class Limited:
            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                file.close()

            def write(self, content: bytes) -> int:
                if disk.left is not None and len(content) > disk.left:
                    write(content[: disk.left])
                    disk.left = 0
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                disk.left = None if disk.left is None else disk.left - len(content)
                return int(write(content))

        return Limited()


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("room", [0, 700, 4_800, 5_000, 20_000, 60_000])
def test_a_disk_that_is_full_is_one_sentence_and_the_same_command_ends_as_if_it_never_was(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    whole = train("run_dir=" + str(tmp_path / "whole"))
    disk, run = FullDisk(tmp_path / "run", monkeypatch), tmp_path / "run"
    disk.left = room
    with pytest.raises(RunDirectoryError, match=r"cannot be written.*No space left on device"):
        train()
    for path in (run / "checkpoints").glob("step-*"):
        verify_checkpoint(path)
    assert not list(run.glob("checkpoints/.*"))
    disk.left = None
    again = train()
    assert again.progress.step == 3
    assert sorted({line["step"] for line in read_metrics(run / "metrics.jsonl")}) == [0, 1, 2, 3]
    for name, weights in whole.adapters.items():
        for layer, (a, b) in weights.pairs.items():
            assert (again.adapters[name].pairs[layer][0] == a).all()
            assert (again.adapters[name].pairs[layer][1] == b).all()


def test_a_run_whose_directory_is_deleted_meanwhile_ends_in_one_sentence(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, save = tmp_path / "run", TrainableAdapters.save

    def saved(self: Any, checkpoints: Path, *more: Any) -> None:
        shutil.rmtree(run)
        save(self, checkpoints, *more)

    monkeypatch.setattr(TrainableAdapters, "save", saved)
    with pytest.raises(RunDirectoryError, match=r"cannot be written any more: No such file.* it goes on anew"):
        train()
    assert not run.exists()
    monkeypatch.undo()
    assert train("train.steps=1").progress.step == 1


def test_a_run_goes_on_from_the_checkpoint_before_a_corrupt_one(train: Callable[..., Any], tmp_path: Path) -> None:
    first, run = train(), tmp_path / "run"
    (run / "checkpoints/step-000003/state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is corrupt: .* --from 2 goes on from the checkpoint before it"):
        train()
    (run / "checkpoints/step-000002/manifest.json").write_text("[]")
    with pytest.raises(CheckpointError, match="--from 1 goes on"):
        train()
    with pytest.raises(CheckpointError, match=r"step-000002 is corrupt.*--from 1"):
        train(from_step=2)
    assert checkpoint_steps(run / "checkpoints") == [1, 2, 3], "nothing was deleted for a step that cannot be used"
    with pytest.raises(CheckpointError, match="has no checkpoint of step 7; there are: 1, 2, 3"):
        train(from_step=7)
    again = train(from_step=1)
    assert checkpoint_steps(run / "checkpoints") == [1, 2, 3]
    for name, weights in first.adapters.items():
        assert all((again.adapters[name].pairs[layer][1] == b).all() for layer, (_, b) in weights.pairs.items())


def test_without_a_whole_checkpoint_before_it_a_corrupt_one_says_so(train: Callable[..., Any], tmp_path: Path) -> None:
    train("train.steps=1")
    (tmp_path / "run/checkpoints/step-000001/state.json").write_text("{}")
    with pytest.raises(CheckpointError, match="there is no whole one before it"):
        train("train.steps=1")


def test_a_refused_start_leaves_no_run_directory(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MasError, match="nobody"):
        train(*mixed("algorithm.reward.late.judge=nobody", "algorithm.reward.late.terms={polite:0}"))
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".gitignore").write_text("*")

    def refused(*_: object, **__: object) -> None:
        raise ConfigError("the packing check says no")

    monkeypatch.setattr(running, "_train", refused)
    with pytest.raises(ConfigError, match="packing"):
        train()
    assert [path.name for path in (tmp_path / "run").iterdir()] == [".gitignore"], "what was there before stays"
    monkeypatch.undo()
    train("train.steps=1")
    monkeypatch.setattr(running, "_train", refused)
    with pytest.raises(ConfigError, match="packing"):
        train("train.steps=2")
    assert checkpoint_steps(tmp_path / "run/checkpoints") == [1], "a run that has begun is kept"


def test_going_back_deletes_nothing_where_the_engine_does_not_start(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train("train.steps=2", "train.eval_every=1")
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*.jsonl")}

    async def refused(*_: object, **__: object) -> None:
        raise EngineError("the engine does not start")

    monkeypatch.setattr("mas.training.session.start_engine", refused)
    with pytest.raises(EngineError, match="does not start"):
        train("train.steps=2", "train.eval_every=1", from_step=1)
    assert checkpoint_steps(tmp_path / "run/checkpoints") == [1, 2]
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.undo()
    train("train.steps=2", "train.eval_every=1", from_step=1)
    assert {path: path.read_bytes() for path in before}.keys() == before.keys()


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_refused_start_leaves_the_configuration_and_the_team_of_the_run_as_they_were(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_checkpoint: bool
) -> None:
    run, other = tmp_path / "run", tmp_path / "other.yaml"
    train("train.steps=1")
    team = (run / "team.yaml").read_text()
    if has_checkpoint:
        other.write_text(team)  # the same team in another file
    else:
        shutil.rmtree(run / "checkpoints")  # as of a run that was killed in its first step
        other.write_text(team.replace("You see the goal", "You know the goal"))
    before = {name: (run / name).read_bytes() for name in ("config.yaml", "team.yaml")}

    async def refused(*_: object, **__: object) -> None:
        raise EngineError("the engine does not start")

    monkeypatch.setattr("mas.training.session.start_engine", refused)
    with pytest.raises(EngineError, match="does not start"):
        train("train.steps=2", f"algorithm.team={other}")
    assert {name: (run / name).read_bytes() for name in before} == before
    monkeypatch.undo()
    train("train.steps=2", f"algorithm.team={other}")
    assert str(other) in (run / "config.yaml").read_text()
    assert load_team(run / "team.yaml") == load_team(other)


def test_going_back_that_is_cut_short_leaves_metrics_for_every_checkpoint(
    train: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train()
    kept = tmp_path / "run/checkpoints"

    def deleted(path: Path) -> None:
        if path.name == "step-000002":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        shutil.rmtree(path)

    monkeypatch.setattr("mas.training.checkpoint.delete_directory", deleted)
    with pytest.raises(RunDirectoryError, match="from its checkpoint of step 2"):
        train(from_step=1)
    assert checkpoint_steps(kept) == [1, 2]
    assert {line["step"] for line in read_metrics(tmp_path / "run/metrics.jsonl")} >= {1, 2}


def test_from_needs_a_run(train: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there are: none"):
        train(from_step=1)
    assert not (tmp_path / "run").exists()


def test_going_back_deletes_nothing_where_the_team_or_the_checkpoint_is_refused(
    train: Callable[..., Any], tmp_path: Path
) -> None:
    train("train.steps=2")
    kept = tmp_path / "run/checkpoints"
    other = tmp_path / "other.yaml"
    team = (tmp_path / "run/team.yaml").read_text()
    other.write_text(team.replace("You see the goal", "You know the goal"))
    config = (tmp_path / "run/config.yaml").read_bytes()
    with pytest.raises(RunDirectoryError, match="which is not the team now"):
        train("train.steps=2", f"algorithm.team={other}", from_step=1)
    assert checkpoint_steps(kept) == [1, 2]
    assert (tmp_path / "run/config.yaml").read_bytes() == config, "the refused team is not named in it"
    state = kept / "step-000001/state.json"
    content = json.loads(state.read_text())
    for change, refusal in (
        ({"versions": {"nobody": 1}}, r"holds adapters \['nobody'\]"),
        ({"tasks": {"x": 1}}, "tasks"),
    ):
        state.write_text(json.dumps(content | change))
        manifest = json.loads((state.parent / "manifest.json").read_text())
        manifest["state.json"] = hashlib.sha256(state.read_bytes()).hexdigest()
        (state.parent / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(CheckpointError, match=refusal):
            train("train.steps=2", from_step=1)
        assert checkpoint_steps(kept) == [1, 2]


def test_discarding_keeps_what_it_did_not_make(tmp_path: Path) -> None:
    with RunDirectory.open(tmp_path / "a/run", {"x": 1}, resume=False) as run:
        (run.path / "mine.txt").write_text("mine")
        run.discard()
    assert [path.name for path in (tmp_path / "a/run").iterdir()] == ["mine.txt"]
