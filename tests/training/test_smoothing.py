"""EPO's smoothing and ST-PPO's correction as parts of the loss, and what a run remembers of its entropies."""

from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from mixed import mixed
from parts import SKILLED, make_turn
from rows import batch_of, learner_of, near, on_policy, rows_of
from signals import losses_of, signals_of
from watched import Seen

from mas.algorithms.parts.losses.policy import SmoothingOptions
from mas.algorithms.parts.losses.tokens import Signals
from mas.algorithms.parts.schedules import PhaseWeight
from mas.config.load import load_config
from mas.config.options import LearnerOptions
from mas.core.errors import ConfigError
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.step_metrics import MetricAccumulator
from mas.training.trainer import Trainer
from mas.training.updates.policy_gradient import Smoother


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def banded(entropy: float, usual: float, weight: float) -> Signals:
    signals = signals_of([0.0], 0.0, entropy=entropy)
    return replace(signals, usual_J=torch.full((1,), usual), smoothing_J=torch.full((1,), weight))


@pytest.mark.parametrize(
    ("entropy", "usual", "loss", "slope"),
    [
        # coefficient 0.1, weight 0.5: -0.1 H inside [0.4, 1.6]; outside 0.05 a nat beyond the band comes on top.
        (1.0, 0.8, -0.1, -0.1),
        (2.0, 0.8, -0.2 + 0.05 * 0.4, -0.1 + 0.05),
        (0.1, 0.8, -0.01 + 0.05 * 0.3, -0.1 - 0.05),
    ],
)
def test_entropy_out_of_its_band_costs_and_is_pulled_back(
    entropy: float, usual: float, loss: float, slope: float
) -> None:
    signals = banded(entropy, usual, 0.5)
    found = losses_of(signals, entropy=0.1, smoothing=SmoothingOptions(low=0.5, high=2.0)).loss_J
    assert found.tolist() == pytest.approx([loss], abs=1e-6)
    (gradient_J,) = torch.autograd.grad(found.sum(), signals.entropy_J)
    assert float(gradient_J) == pytest.approx(slope, abs=1e-6)


def test_what_has_no_history_is_not_smoothed() -> None:
    options: dict[str, Any] = {"entropy": 0.1, "smoothing": SmoothingOptions()}
    found = losses_of(banded(9.0, 0.0, 0.0), **options)
    assert found.loss_J.tolist() == pytest.approx([-0.9])
    assert found.values["smoothing"].tolist() == [0]


def test_smoothing_needs_the_option_a_history_and_a_weight() -> None:
    asked: dict[str, Any] = {"entropy": 0.1, "smoothing": SmoothingOptions()}
    whole = banded(9.0, 1.0, 0.5)
    assert "smoothing" in losses_of(whole, **asked).values
    for signals in (replace(whole, usual_J=None), replace(whole, smoothing_J=None)):
        assert "smoothing" not in losses_of(signals, **asked).values
    assert "smoothing" not in losses_of(whole, entropy=0.1).values


def test_a_history_is_read_before_it_is_written_and_goes_on(base: BaseModel) -> None:
    learner = learner_of(base)
    rows = batch_of(
        [make_turn(role="planner", turn=turn, id=str(turn), trajectory=str(turn)) for turn in (0, 1)], [0.0] * 2
    )
    smoother = Smoother(learner, SmoothingOptions(weight=2.0, steps=10))
    first = smoother.smoothed(rows[:1], 1)
    assert [(row.usual, row.smoothing) for row in first] == [(0.0, 0.0)]
    resumed = Smoother(learner, SmoothingOptions(weight=2.0, steps=10))
    resumed.restore(smoother.state())
    second = resumed.smoothed(rows, 2)
    entropies = learner.entropies(rows)
    assert second[0].usual == pytest.approx(sum(entropies[id(rows[0].turn)]) / len(rows[0].turn.completion_ids))
    assert second[0].smoothing == pytest.approx(2.0 * PhaseWeight(epochs=10)(1))
    assert (second[1].usual, second[1].smoothing) == (0.0, 0.0)


def test_smoothing_reaches_the_adapter(base: BaseModel) -> None:
    rows = batch_of([make_turn(role="planner", completion_ids=(8, 9))], [0.0])
    weights = []
    for usual in (0.0, 0.01):
        learner = learner_of(base, entropy=0.1, smoothing=SmoothingOptions(high=1.0))
        held = [replace(row, usual=usual, smoothing=5.0 if usual else 0.0) for row in rows]
        for _ in range(2):
            learner.step(held)
        weights.append(torch.cat([tensor.detach().flatten() for tensor in learner.adapters["planner"].parameters()]))
    assert not torch.equal(*weights)


def far_rows(learner: Learner) -> list[TrainRow]:
    """Of two adapters; some tokens have moved beyond the bounds since they were sampled, up and down."""
    rows = on_policy(learner, rows_of("planner", "executor"))
    moved = []
    for number, row in enumerate(rows):
        logprobs = tuple(one - (0.6, -0.5, 0.05)[(number + place) % 3] for place, one in enumerate(row.turn.logprobs))
        moved.append(make_turn(role=row.turn.role, prompt_ids=row.turn.prompt_ids,
                               completion_ids=row.turn.completion_ids, logprobs=logprobs))  # fmt: skip
    return batch_of(moved, [row.advantage for row in rows])


def gradients_of(learner: Learner, rows: list[TrainRow]) -> dict[str, torch.Tensor]:
    """Of each adapter after an update that changes no weight."""
    learner.begin(0.0)
    learner.update(rows, defaultdict(MetricAccumulator), None)
    return {
        name: torch.cat([one.grad.double().flatten() for one in weights.parameters() if one.grad is not None])
        for name, weights in learner.adapters.items()
        if any(one.grad is not None for one in weights.parameters())
    }


@pytest.mark.parametrize("ratio", ["token", "turn"])
@pytest.mark.parametrize("recompute", [False, True])
def test_an_adapters_gradient_is_divided_by_one_and_the_norm_of_what_clipping_takes(
    base: BaseModel, ratio: str, recompute: bool
) -> None:
    options = LearnerOptions(clip_norm=1e9, recompute_layers=recompute, micro_batch_tokens=40)
    common: dict[str, Any] = {"ratio": ratio, "importance_cap": None, "dual_clip": None}
    whole = learner_of(base, options, clip_low=None, clip_high=None, **common)
    rows = far_rows(whole)
    free, clipped = gradients_of(whole, rows), gradients_of(learner_of(base, options, **common), rows)
    corrected = gradients_of(learner_of(base, options, bias_correction=True, **common), rows)
    assert set(corrected) == {"planner", "executor"}
    for name, gradient in corrected.items():
        bias = float((free[name] - clipped[name]).norm())
        assert bias > 0.01
        assert near(gradient, clipped[name] / (1 + bias), 1e-4)


def test_on_policy_nothing_is_clipped_and_nothing_corrected(base: BaseModel) -> None:
    plain, corrected = learner_of(base), learner_of(base, bias_correction=True)
    rows = on_policy(plain, rows_of("planner"))
    found = [gradients_of(learner, rows)["planner"] for learner in (plain, corrected)]
    assert torch.equal(*found)


@pytest.mark.parametrize(("name", "ratio", "level"), [("st_ppo", "turn", "turn"), ("s_ppo", "token", "token")])
async def test_the_presets_correct_what_several_updates_of_a_step_clip(
    base_for: BaseFor, name: str, ratio: str, level: str
) -> None:
    tiny = [f"model.tiny.{key}={value}" for key, value in SKILLED.tiny.model_dump(exclude_unset=True).items()]
    config = load_config(
        [f"algorithm={name}", "scenario=relay", "train.steps=2", "train.tasks_per_step=4", "train.eval_every=0",
         "train.eval_tasks=4", "algorithm.sampler.candidates=4", "learner.minibatches=4", "learner.lr=0.05",
         "model.lora.rank=4", *tiny]
    )  # fmt: skip
    assert (config.algorithm.loss.ratio, config.algorithm.critic.level) == (ratio, level)
    scenario = build_scenario(config.scenario)
    seen = Seen()
    await Trainer(resolve_training(config, scenario), base_for("relay", SKILLED)).run(seen)
    biases = [one["clipping_bias"] for metrics in seen.metrics for one in metrics["adapters"].values()]
    assert len(biases) == 4
    assert max(biases) > 0


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm.loss.entropy=0", "algorithm.loss.smoothing.high=2"], "a share of entropy, which is 0"),
        (["algorithm.loss.smoothing.low=2"], "leave no band"),
        (["algorithm=sapo", "algorithm.loss.bias_correction=true"], "only surrogate=clip with a bound"),
        (["algorithm=ppo", "algorithm.loss.smoothing.high=2"], "critic does not go together with loss.smoothing"),
    ],
)
def test_what_would_smooth_nothing_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(mixed(*words))
