"""A start that cannot fit is refused before anything is loaded or written, and nothing is left of refused starts."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from rich.console import Console

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ModelError, TrainingError
from mas.core.role import View
from mas.runs.resolve import resolve
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.base_measures import Footprint
from mas.training import base
from mas.training.estimates import Needs, Work, needs_of, rows_at_once
from mas.training.learner import Learner


@pytest.fixture
def config(tmp_path: Path, base_for: BaseFor) -> Config:
    """Of a run on a model from a directory, which is nothing that mas made for it."""
    options = ("scenario=relay", "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "model.lora.rank=4")
    return load_config([*options, f"model.path='{base_for('relay').name}'", f"run_dir='{tmp_path / 'run'}'"])


def train(config: Config) -> str:
    console = Console(file=io.StringIO(), width=300)
    try:
        train_in_directory(config, build_scenario(config.scenario), console=console)
    finally:
        text: str = console.file.getvalue()
    return text


def with_model(config: Config, **changes: Any) -> Config:
    return config.model_copy(update={"model": config.model.model_copy(update=changes)})


def test_a_base_that_does_not_fit_is_refused_before_it_is_loaded(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.training.estimates.free_on", lambda options: 10_000)
    monkeypatch.setattr(base, "load_base", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(ModelError, match=r"does not fit: base and adapters need .* MiB, 0 MiB of memory are free.*"):
        train(config)
    assert not Path(config.run_dir).exists()


def test_it_is_tried_all_the_same_where_the_user_says_so(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.training.estimates.free_on", lambda options: 10_000)
    assert "is finished" in train(with_model(config, check_memory=False))


def test_what_may_not_suffice_is_a_line_and_no_refusal(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[Needs]()

    def noted(*given: Any, **named: Any) -> Needs:
        found.append(needs_of(*given, **named))
        return found[-1]

    monkeypatch.setattr(base, "needs_of", noted)
    monkeypatch.setattr("mas.training.estimates.free_on", lambda options: found[-1].sure)
    text = train(config)
    assert "memory: about " in text
    assert "memory may not suffice" in text
    monkeypatch.setattr("mas.training.estimates.free_on", lambda options: 2**40)
    again = train(config.model_copy(update={"run_dir": f"{config.run_dir}-2"}))
    assert "; 1024.0 GiB free" in again
    assert "memory may not suffice" not in again


def test_needs_follow_from_rows_tokens_and_adapters(config: Config) -> None:
    footprint = Footprint(parameters=0, weights=1000, adapter=10, cached=3, activation=7, layer_input=1, logits=5)
    work = Work(calls=2, prompt_tokens=100, new_tokens=4, width=60)
    config = load_config(
        ["scenario=relay", "train.tasks_per_step=2", "train.eval_tasks=3", "algorithm.sampler.candidates=4"]
    )
    setup = resolve(config)
    needs = needs_of(setup, footprint, work, is_trained=True)
    # 8 rows of 60 tokens, twice as long as needed, with two copies of their logits; six copies of two adapters.
    assert (needs.base, needs.adapters, needs.cache) == (1000, 6 * 2 * 10, 8 * (2 * 60 * 3 + 2 * 5))
    # 2 prompts of 100 and 8 answers of 4 tokens; logits of 256 tokens at a time, three copies.
    minibatches = config.learner.minibatches
    tokens = round(232 / minibatches)
    assert needs.learner == tokens * 7 + 3 * 5 * min(256, tokens)
    played = needs_of(setup, footprint, work, is_trained=False)
    assert (played.adapters, played.learner) == (2 * 2 * 10, 0)
    assert played.cache == 3 * (2 * 60 * 3 + 2 * 5), "as many rows as held-out tasks"


def test_messages_agents_at_once_and_play_outs_need_memory() -> None:
    footprint = Footprint(parameters=0, weights=1000, adapter=10, cached=3, activation=7, layer_input=1, logits=5)
    options = ["scenario=debate", "train.tasks_per_step=2", "train.eval_tasks=3", "algorithm.sampler.candidates=4"]
    more = ["algorithm.sampler.continuations=2", "learner.minibatches=1"]
    setup = resolve(load_config([*options, *more]))
    limits = SimpleNamespace(context=10**6)
    letters: Any = SimpleNamespace(chats=False, limits=limits, tokenizer=SimpleNamespace(encode=list))
    work = Work.bound(setup, letters)
    first, second, judge = (setup.plan.roles[name].spec.max_tokens for name in ("first", "second", "judge"))
    assert setup.plan.agents == ("first", "second", "judge")
    assert work.heard_tokens == first + second, "what the judge hears"
    environment = setup.scenario.environment()
    environment.reset(setup.scenario.task("eval", 0))
    asked = setup.plan.roles["judge"].prompt(View(observation=environment.observe("judge")))
    assert work.widest == max(work.width, len(asked) + first + second + judge)
    # 2 tasks x 4 candidates, of two debaters at once, each played on twice.
    assert rows_at_once(setup) == 2 * 4 * 2 * 2
    needs = needs_of(setup, footprint, work, is_trained=True)
    assert needs.cache == 32 * (2 * work.widest * 3 + 2 * 5)
    # Candidates of one state heard the same: prompts and messages of 2 tasks, 8 answers of each agent.
    tokens = 2 * (work.prompt_tokens + first + second) + 8 * (first + second + judge)
    assert needs.learner == tokens * 7 + 3 * 5 * min(256, tokens)
    assert needs_of(setup, footprint, work, is_trained=False).cache == 6 * (2 * work.widest * 3 + 2 * 5)
    apart = resolve(load_config([*options, "algorithm.sampler.mode=parallel", "learner.minibatches=1"]))
    assert rows_at_once(apart) == 2 * 4 * 2, "whole episodes are not played on"
    # In episodes of their own each judge hears others: messages count for all 8.
    tokens = 2 * work.prompt_tokens + 8 * (2 * (first + second) + judge)
    assert needs_of(apart, footprint, work, is_trained=True).learner == tokens * 7 + 3 * 5 * min(256, tokens)


@pytest.mark.parametrize(
    "error",
    [ModelError("no packing"), RuntimeError("a kernel failed"), KeyboardInterrupt(), MemoryError()],
    ids=lambda error: type(error).__name__,
)
def test_a_start_that_fails_or_is_interrupted_leaves_nothing(
    config: Config, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def broken(*_: Any) -> None:
        raise error

    monkeypatch.setattr(Learner, "__init__", broken)
    expected = TrainingError if isinstance(error, MemoryError) else type(error)
    parent = Path(config.run_dir).with_name("new")
    for run_dir in (Path(config.run_dir), parent / "folder" / "run"):
        with pytest.raises(expected):
            train(config.model_copy(update={"run_dir": str(run_dir)}))
        assert not run_dir.exists()
    assert not parent.exists()
    (parent / "other").mkdir(parents=True)
    with pytest.raises(expected):
        train(config.model_copy(update={"run_dir": str(parent / "run")}))
    assert list(parent.iterdir()) == [parent / "other"], "what was there before stays"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
    ],
)
def test_memory_that_runs_out_while_learning_is_one_sentence_that_says_what_needs_less(
    config: Config, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(Learner, "step", full)
    with pytest.raises(TrainingError, match=r"^memory ran out: .*learner\.micro_batch_tokens needs less[^\n]*$"):
        train(config)
    assert Path(config.run_dir).exists(), "the first evaluation was measured"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "layers that the model does not have": ({"lora": {"targets": ("query",)}}, "name no linear layer"),
    "a context that no prompt fits into": ({"max_context": 1}, "none of the 2 held-out tasks could be played"),
}


@pytest.mark.parametrize("named", REFUSED)
def test_wrong_options_of_a_model_leave_nothing(config: Config, named: str) -> None:
    changes, message = REFUSED[named]
    changed = Config.model_validate(config.model_dump() | {"model": config.model.model_dump() | changes})
    with pytest.raises(Exception, match=message):
        train(changed)
    assert not Path(config.run_dir).exists()
