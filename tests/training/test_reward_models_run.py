"""Reward models in whole runs: from the sampler's turns to metrics, checkpoints and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, runtime_of, sample, turns_of
from pydantic import ValidationError

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.records import Episode
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.training.check_setup import check_trainable
from mas.training.checkpoint import list_checkpoints, update_tensors
from mas.training.evaluate import Evaluation
from mas.training.sampling.episode_facts import Grounded
from mas.training.trainer import Trainer, TrainingOutcome

PARALLEL = {"sampler": {"mode": "parallel"}}
PROGRESS, IMPLICIT = {"kind": "progress"}, {"kind": "implicit"}
STEP = {"step": {"value": "model", "key": "group"}}


class Steps:
    """A watcher that keeps every step's metrics."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Any) -> None:
        self.metrics.append(metrics)

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


@pytest.fixture(scope="module")
def paths(base_for: BaseFor) -> BaseModel:
    return base_for("plan_path", SKILLED)


def config_of(preset: str, **train: Any) -> Config:
    sizes = [f"scenario.options.{one}" for one in ("walls=0", "size=3", "max_turns=4")]
    words = ["scenario=plan_path", *sizes, f"algorithm={preset}"]
    options = {"steps": 2, "tasks_per_step": 2, "eval_tasks": 1, "eval_every": 0, "checkpoint_every": 1} | train
    words += ["algorithm.sampler.candidates=3", *(f"train.{name}={value}" for name, value in options.items())]
    return load_config(words).model_copy(update={"model": SKILLED})


async def train(config: Config, base: BaseModel, checkpoints: Path | None = None) -> tuple[TrainingOutcome, Steps]:
    steps = Steps()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    trainer.resume()
    return await trainer.run(steps), steps


def all_weights(outcome: TrainingOutcome) -> torch.Tensor:
    return torch.cat([one.flatten() for own in outcome.adapters.values() for one in own.parameters()])


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("preset", ["spa_rl", "oprl"])
async def test_a_run_that_goes_on_ends_with_the_bits_of_one_that_never_stopped(
    paths: BaseModel, tmp_path: Path, preset: str
) -> None:
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    straight, steps = await train(config_of(preset), paths, tmp_path / "whole")
    await train(config_of(preset, steps=1), paths, tmp_path / "parts")
    resumed, _ = await train(config_of(preset), paths, tmp_path / "parts")
    assert torch.equal(all_weights(straight), all_weights(resumed))
    first, second = (update_tensors(list_checkpoints(tmp_path / name)[-1]) for name in ("whole", "parts"))
    assert first.keys() == second.keys()
    assert any(name.startswith("reward_model/executor/optimiser.") for name in first)
    assert all(torch.equal(one, second[name]) for name, one in first.items())
    for metrics in steps.metrics:
        told = metrics["reward_model"]
        assert set(told) == {"planner", "executor", "verifier", "feedback"} & set(metrics["adapters"])
        # Without a success, or without a failure, an estimate of 0 and phi are right already.
        losses = [(own["loss"], own["loss_after"]) for own in told.values() if own.get("loss")]
        assert losses
        assert sum(after for _, after in losses) < sum(before for before, _ in losses)


async def test_an_action_is_grounded_where_the_world_moved(paths: BaseModel) -> None:
    scenario = build_scenario(config_of("spa_rl").scenario)
    options = SamplerOptions(mode="parallel", candidates=6)
    async with runtime_of(scenario.teams["team"], TransformersEngine(paths)) as runtime:
        episodes = await sample(runtime, scenario, [0, 1, 2], options)
    for episode in episodes:
        moved = {turn.turn for turn in episode.turns if Grounded.of(turn).is_grounded}
        # Every team turn without a move costs 0.4.
        assert episode.length - len(moved) == pytest.approx(-episode.rewards.get("waste", 0.0) / 0.4)
        assert not any(Grounded.of(turn).is_grounded for turn in episode.turns if turn.failure is not None)
    flags = {Grounded.of(turn).is_grounded for turn in turns_of(episodes)}
    assert flags == {True, False}


async def test_a_tree_does_not_say_what_was_grounded(paths: BaseModel) -> None:
    scenario = build_scenario(config_of("spa_rl").scenario)
    async with runtime_of(scenario.teams["team"], TransformersEngine(paths)) as runtime:
        episodes: list[Episode] = await sample(runtime, scenario, [0], SamplerOptions(candidates=2))
    assert {tuple(turn.facts) for turn in turns_of(episodes)} == {()}


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"reward": {"model": PROGRESS}}, "with sampler.mode=tree: that is of whole episodes"),
        (
            {"reward": {"model": PROGRESS}, "update": "preference", "sampler": {"mode": "full_tree"}},
            "with sampler.mode=full_tree: that is of whole episodes",
        ),
        (
            PARALLEL | {"reward": {"model": PROGRESS}, "update": "training_free"},
            "reward.model does not go together with update=training_free",
        ),
        (PARALLEL | {"reward": {"model": PROGRESS | {"joins": "step"}}}, "only advantage.step.value=model reads it"),
        (PARALLEL | {"advantage": STEP}, "it reads reward.model with joins=step"),
        (
            PARALLEL | {"advantage": STEP, "reward": {"model": IMPLICIT}},
            "it reads reward.model with joins=step",
        ),
        (
            {"sampler": {"mode": "parallel", "filter": {}}, "reward": {"model": PROGRESS | {"joins": "alone"}}},
            "sampler.filter: rewards are compared as they are sampled",
        ),
        (
            {"sampler": {"mode": "parallel", "refill": 1}, "reward": {"model": PROGRESS}},
            "reward.model: not only differences inside groups teach",
        ),
        (PARALLEL | {"reward": {"model": PROGRESS | {"beta": 1.0}}}, "only kind=implicit has it"),
        (PARALLEL | {"reward": {"model": PROGRESS | {"pooling": "mean"}}}, "only kind=implicit has it"),
        (PARALLEL | {"reward": {"model": PROGRESS | {"eta": 0.1}}}, "only bound=clip and bound=both take it off"),
        (PARALLEL | {"advantage": {"step": {"key": "none", "baseline": "leave_one_out"}}}, "compares with nothing"),
    ],
)
def test_what_makes_no_sense_beside_a_reward_model_is_refused(algorithm: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        AlgorithmOptions.model_validate(algorithm)


@pytest.mark.parametrize("word", ["alpha=0.5", "failure=-2"])
def test_terms_that_a_model_replaces_cannot_be_set(word: str) -> None:
    with pytest.raises(ConfigError, match="leaves no term but the model's own"):
        load_config(["scenario=plan_path", "algorithm=spa_rl", f"algorithm.reward.{word}"])
    load_config(["scenario=plan_path", "algorithm=clip_delta", f"algorithm.reward.{word}"])


def test_a_model_needs_episodes_of_several_turns_and_its_term_may_be_weighed() -> None:
    relay = load_config(["scenario=relay", "algorithm=clip_delta"])
    with pytest.raises(ConfigError, match=r"algorithm.reward.model makes no sense here: every agent .* speaks once"):
        check_trainable(resolve(relay))
    weights = "algorithm.reward.weights={model: 2}"
    paid = load_config(["scenario=plan_path", "algorithm=clip_delta", weights])
    check_trainable(resolve(paid))
    unpaid = load_config(["scenario=plan_path", "algorithm=oprl", "algorithm.reward.source=terms", weights])
    with pytest.raises(ConfigError, match="'model', a term never paid"):
        check_trainable(resolve(unpaid))
