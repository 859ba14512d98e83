"""Adapters of one team that differ in rank, scale and layers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas.config.options import AdapterOptions, LoraOptions, ModelOptions

OWN = ("model.adapters.planner.rank=2", "model.adapters.planner.alpha=6", "model.adapters.planner.targets=[q_proj]")
SHORT = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2")


def test_what_an_adapter_does_not_say_is_as_in_all() -> None:
    options = ModelOptions(
        lora=LoraOptions(rank=4, targets=("q_proj", "k_proj")),
        adapters={"a": AdapterOptions(rank=9), "b": AdapterOptions(targets=("up_proj",), alpha=1.0)},
    )
    assert options.lora_of("a") == LoraOptions(rank=9, targets=("q_proj", "k_proj"))
    assert options.lora_of("b") == LoraOptions(rank=4, alpha=1.0, targets=("up_proj",))
    assert options.lora_of("c") == options.lora
    assert (options.highest_rank, options.targets) == (9, ("q_proj", "k_proj", "up_proj"))


def test_every_role_trains_an_adapter_of_its_own_shape_and_goes_on_with_it(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    words = ("scenario=relay", *SHORT, *small_overrides, *OWN, f"run_dir={tmp_path / 'run'}")
    assert mas("train", *words).code == 0
    configs = {
        name: json.loads((tmp_path / "run" / "adapters" / name / "adapter_config.json").read_text())
        for name in ("planner", "executor")
    }
    assert (configs["planner"]["r"], configs["planner"]["lora_alpha"]) == (2, 6.0)
    assert configs["planner"]["target_modules"] == ["q_proj"]
    assert len(configs["executor"]["target_modules"]) == 7
    assert mas("eval", str(tmp_path / "run"), "--tasks", "2").code == 0
    assert mas("train", *words, "train.steps=2").code == 0


def test_options_of_an_adapter_that_no_role_trains_are_refused(mas: Callable[..., Any], tmp_path: Path) -> None:
    run = tmp_path / "run"
    ran = mas("train", "scenario=relay", "model.adapters.planer.rank=2", f"run_dir={run}")
    assert ran.code == 2
    assert "model.adapters has 'planer', which no role trains. Did you mean 'planner'?" in ran.err
    assert not run.exists()
    shared = mas("train", "scenario=relay", "algorithm.policy=shared", *OWN, f"run_dir={run}")
    assert "model.adapters has 'planner', which no role trains. Possible: 'shared'" in shared.err


@pytest.mark.parametrize("word", ["model.adapters.planner.rank=0", "model.adapters.planner.depth=3"])
def test_impossible_options_of_an_adapter_are_refused(mas: Callable[..., Any], word: str) -> None:
    assert mas("config", "scenario=relay", word).code == 2


def test_an_adapter_of_no_layer_is_refused_before_anything_is_written(mas: Callable[..., Any], tmp_path: Path) -> None:
    for key in ("model.lora.targets", "model.adapters.planner.targets"):
        ran = mas("train", "scenario=relay", f"{key}=[]", f"run_dir={tmp_path / 'run'}")
        assert ran.code == 2
        assert key in ran.err
    assert not (tmp_path / "run").exists()
