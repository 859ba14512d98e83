"""One backbone for all roles, then a copy of it for each: `algorithm.fork`, and the preset `tool_learner`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BaseFor
from mixed import mixed
from parts import SKILLED
from watched import Seen

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.runs.resolve import resolve, resolve_training
from mas.serving.model import BaseModel
from mas.training.adapters import TrainableAdapters
from mas.training.check_setup import check_trainable
from mas.training.optimiser import optimiser_tensors
from mas.training.trainer import Trainer

ROLES = ("planner", "caller", "summariser")
SMALL = (
    *("train.eval_every=0", "train.eval_tasks=2", "algorithm.sampler.candidates=4", "train.tasks_per_step=4"),
    "train.target=null",
    "learner.final_lr=1.0",  # A run that stops early has the learning rates of one that goes on.
)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("tool_use", SKILLED)


def config_of(*words: str) -> Config:
    config = load_config(
        ["scenario=tool_use", "algorithm=tool_learner", "algorithm.options.fork_after=2", *SMALL, *words]
    )
    return config.model_copy(update={"model": SKILLED})


async def trained(base: BaseModel, *words: str, checkpoints: Path | None = None) -> tuple[Trainer, Seen]:
    config, seen = config_of(*words), Seen()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    trainer.resume()
    await trainer.run(seen)
    return trainer, seen


def speakers(seen: Seen) -> list[set[tuple[str, str]]]:
    """Step by step: which role used which adapter."""
    turns = [[turn for episode in episodes for turn in episode.turns] for episodes in seen.episodes]
    return [{(turn.role, turn.adapter.name) for turn in own if turn.adapter} for own in turns]


def weights_of(trainer: Trainer, name: str) -> list[torch.Tensor]:
    return trainer.trainable.adapters[name].parameters()


def is_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.nightly(of=16)
async def test_all_roles_learn_through_one_adapter_and_then_each_through_its_own(base: BaseModel) -> None:
    _, seen = await trained(base, "train.steps=4")
    assert speakers(seen)[:2] == [{(role, "planner") for role in ROLES}] * 2
    assert all(found <= {(role, role) for role in ROLES} for found in speakers(seen)[2:])
    assert [set(metrics["adapters"]) for metrics in seen.metrics[:2]] == [{"planner"}] * 2
    assert set().union(*(metrics["adapters"] for metrics in seen.metrics[2:])) == set(ROLES)


async def test_at_the_fork_all_are_the_backbone_with_its_optimiser_and_after_it_they_part(base: BaseModel) -> None:
    forked, _ = await trained(base, "train.steps=2")
    fresh, _ = await trained(base, "train.steps=0")
    assert not is_equal(weights_of(forked, "planner"), weights_of(fresh, "planner"))
    assert isinstance(forked.trainable, TrainableAdapters)
    learner = forked.trainable.learner
    kept = [optimiser_tensors(learner.optimisers[name], learner.adapters[name].parameters()) for name in ROLES]
    for name, state in zip(ROLES[1:], kept[1:], strict=True):
        assert is_equal(weights_of(forked, name), weights_of(forked, "planner"))
        assert state.keys() == kept[0].keys() != set()
        assert all(torch.equal(state[key], kept[0][key]) for key in state)
    parted, _ = await trained(base, "train.steps=4")
    for name in ROLES[1:]:
        assert not is_equal(weights_of(parted, name), weights_of(parted, "planner"))


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("stops", [(1, 3, 4), (2, 4)])
async def test_a_run_that_is_killed_around_the_fork_ends_as_one_that_was_not(
    base: BaseModel, tmp_path: Path, stops: tuple[int, ...]
) -> None:
    straight, _ = await trained(base, "train.steps=4")
    for stop in stops:
        last, _ = await trained(base, "train.checkpoint_every=1", f"train.steps={stop}", checkpoints=tmp_path)
    for name in ROLES:
        assert is_equal(weights_of(straight, name), weights_of(last, name))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=matpo"], "policy=shared"),
        (["algorithm=cory"], "swap"),
        (["algorithm=ppo"], "advantage.baseline=critic"),
        (["algorithm=oprl"], "reward.model"),
        (["algorithm=epo"], "loss.smoothing"),
        (["algorithm=arpo", "train.tasks.source=epochs", "train.tasks.count=64"], "sampler.replay"),
        (["algorithm=training_free"], "update=training_free"),
    ],
)
def test_a_fork_is_refused_beside_what_each_adapter_keeps_for_itself(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"fork does not go together with {reason}: each role gets a copy"):
        load_config(mixed(*words, "algorithm.fork.after=3"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm.team=solo"], "the team trains \\['solo'\\] alone"),
        (["model.adapters.caller.rank=2"], "model.adapters gives 'caller' another rank"),
    ],
)
def test_a_fork_needs_several_adapters_that_are_alike(words: list[str], reason: str) -> None:
    config = load_config(mixed("scenario=tool_use", "algorithm=at_grpo", "algorithm.fork.after=3", *words))
    with pytest.raises(ConfigError, match=reason):
        check_trainable(resolve(config))


def test_the_preset_forks() -> None:
    options: Any = load_config(["algorithm=tool_learner", "scenario=tool_use"]).algorithm
    assert (options.fork.after, options.update, options.preference.dpo) == (8, "preference", 0.0)
