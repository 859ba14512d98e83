"""Checkpoints: exact, checked, and pruned."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED, make_turn

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions, LoraOptions
from mas.core.errors import CheckpointError
from mas.core.records import Cost
from mas.observe.files import remove_leftovers
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow, train_rows
from mas.training.checkpoint import (
    Progress,
    checkpoint_steps,
    go_back,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
    verify_checkpoint,
)
from mas.training.learner import Learner

NAMES = ("planner", "executor")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def learner_of(base: BaseModel, seed: int = 0) -> Learner:
    adapters = {name: loud_adapter(base, seed + index) for index, name in enumerate(NAMES)}
    return Learner(base, adapters, LearnerOptions(weight_decay=0.01), LossOptions())


def rows_of(number: int, roles: tuple[str, ...] = NAMES) -> list[TrainRow]:
    turns = [make_turn(role=role, completion_ids=(8 + k, 9 + number)) for role in roles for k in range(4)]
    advantages = [(-1.0) ** n for n in range(len(turns))]
    names = {name: name for name in NAMES}
    return train_rows(turns, advantages, names, aggregation="seq_mean_token_mean", max_length=8)


SPENT = Cost(calls=50, prompt_tokens=900, shared_prompt_tokens=300, completion_tokens=100)


def progress(step: int = 2) -> Progress:
    return Progress(step, SPENT, 3, {"planner": 2, "executor": 1}, 0.25)


@pytest.fixture
def saved(base: BaseModel, tmp_path: Path) -> Path:
    """A learner after two steps, of which the executor took one."""
    learner = learner_of(base)
    learner.step(rows_of(0))
    learner.step(rows_of(1, ("planner",)))
    return save_checkpoint(tmp_path, learner, progress(), keep=2)


def test_the_next_step_after_loading_is_bit_equal(base: BaseModel, tmp_path: Path) -> None:
    learner = learner_of(base)
    learner.step(rows_of(0))
    learner.step(rows_of(1, ("planner",)))
    path = save_checkpoint(tmp_path, learner, progress(), keep=2)
    used = learner_of(base, seed=50)
    used.step(rows_of(5))
    for other in (learner_of(base, seed=50), used):
        assert load_checkpoint(path, other) == progress()
        twin = learner_of(base)
        load_checkpoint(path, twin)
        for number in (2, 3):
            assert other.step(rows_of(number)) == twin.step(rows_of(number))
    for number in (2, 3):
        learner.step(rows_of(number))
    for name in NAMES:
        for mine, theirs in zip(learner.adapters[name].parameters(), other.adapters[name].parameters(), strict=True):
            assert torch.equal(mine, theirs)


def test_an_adapter_that_never_learned_is_loaded_without_optimiser_state(base: BaseModel, tmp_path: Path) -> None:
    path = save_checkpoint(tmp_path, learner_of(base), progress(), keep=1)
    used = learner_of(base, seed=50)
    used.step(rows_of(0))
    load_checkpoint(path, used)
    assert all(not optimiser.state for optimiser in used.optimisers.values())


@pytest.mark.parametrize(
    "name",
    [
        "state.json",
        "manifest.json",
        "adapters/planner/adapter_model.safetensors",
        "adapters/executor/adapter_config.json",
        "optimisers/planner.safetensors",
    ],
)
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_file_is_detected_before_anything_is_loaded(
    base: BaseModel, saved: Path, name: str, damage: str
) -> None:
    file = saved / name
    content = file.read_bytes()
    file.unlink()
    if damage != "delete":
        file.write_bytes(content[:-3] if damage == "cut" else content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    learner = learner_of(base, seed=50)
    before = [tensor.detach().clone() for tensor in learner.adapters["planner"].parameters()]
    with pytest.raises(CheckpointError, match="corrupt"):
        load_checkpoint(saved, learner)
    for now, then in zip(learner.adapters["planner"].parameters(), before, strict=True):
        assert torch.equal(now, then)


def test_only_the_latest_checkpoints_are_kept(base: BaseModel, tmp_path: Path) -> None:
    learner = learner_of(base)
    for step in (1, 2, 10, 11):
        save_checkpoint(tmp_path, learner, progress(step), keep=2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000010", "step-000011"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000010", "step-000011"]
    assert verify_checkpoint(list_checkpoints(tmp_path)[-1]).step == 11


def test_one_that_training_deletes_while_it_is_read_is_not_called_corrupt(base: BaseModel, tmp_path: Path) -> None:
    learner = learner_of(base)
    path = save_checkpoint(tmp_path, learner, progress(1), keep=1)
    save_checkpoint(tmp_path, learner, progress(2), keep=1)
    with pytest.raises(CheckpointError, match=r"step-000001 is gone: .* keeps only its newest.* do it again"):
        verify_checkpoint(path)


def test_the_millionth_step_comes_after_those_before_it_and_copies_of_checkpoints_are_none(
    base: BaseModel, tmp_path: Path
) -> None:
    learner = learner_of(base)
    for step in (999_998, 999_999, 1_000_000):
        path = save_checkpoint(tmp_path, learner, progress(step), keep=2)
    assert path.is_dir()
    shutil.copytree(path, tmp_path / "step-1000000.bak")
    shutil.copytree(path, tmp_path / "step-before")
    assert checkpoint_steps(tmp_path) == [999_999, 1_000_000]
    save_checkpoint(tmp_path, learner, progress(1_000_001), keep=1)
    assert {path.name for path in tmp_path.iterdir()} == {"step-1000001", "step-1000000.bak", "step-before"}


def test_one_whose_deletion_is_cut_short_is_no_checkpoint_any_more(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(path: Path) -> None:
        (path / "manifest.json").unlink()
        raise KeyboardInterrupt

    learner = learner_of(base)
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, learner, progress(step), keep=3)
    monkeypatch.setattr("shutil.rmtree", kill)
    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, learner, progress(4), keep=3)
    assert {path.name for path in tmp_path.glob("step-*")} == {"step-000002", "step-000003", "step-000004"}
    with pytest.raises(KeyboardInterrupt):
        go_back(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-000002", "step-000003"]
    monkeypatch.undo()
    assert remove_leftovers(tmp_path) == 2
    assert go_back(tmp_path, 2) == [3]
    assert {path.name for path in tmp_path.iterdir()} == {"step-000002"}


def test_a_checkpoint_of_other_adapters_is_refused(base: BaseModel, saved: Path) -> None:
    other = Learner(base, {"solo": loud_adapter(base, 1)}, LearnerOptions(), LossOptions())
    with pytest.raises(CheckpointError, match=r"holds adapters \['executor', 'planner'\], the run has \['solo'\]"):
        load_checkpoint(saved, other)


@pytest.mark.parametrize("change", [{"rank": 2}, {"alpha": 1.0}, {"targets": ("q_proj",)}])
def test_a_checkpoint_of_another_shape_is_refused(base: BaseModel, saved: Path, change: dict[str, object]) -> None:
    options = LoraOptions(**base.options.lora.model_dump() | change)
    adapters = {name: base.bank.create(options, 0) for name in NAMES}
    with pytest.raises(CheckpointError, match=r"go on with model\.lora as it was"):
        load_checkpoint(saved, Learner(base, adapters, LearnerOptions(), LossOptions()))


def test_files_are_plain_peft_and_json(saved: Path) -> None:
    config = json.loads((saved / "adapters" / "planner" / "adapter_config.json").read_text())
    assert config["peft_type"] == "LORA"
    assert json.loads((saved / "state.json").read_text())["success"] == 0.25
