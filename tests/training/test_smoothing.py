"""EPO's smoothing and ST-PPO's correction as parts of the loss, and what a run remembers of its entropies."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn
from rows import batch_of, learner_of
from signals import losses_of, signals_of

from mas.config.load import load_config
from mas.config.losses import SmoothingOptions
from mas.core.errors import ConfigError
from mas.serving.model import BaseModel
from mas.training.losses.correction import bias_correction
from mas.training.losses.tokens import Signals
from mas.training.schedules import PhaseWeight
from mas.training.updates.smoother import Smoother


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
    assert losses_of(banded(9.0, 0.0, 0.0), **options).loss_J.tolist() == pytest.approx([-0.9])


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


def test_a_turn_that_clipping_takes_much_from_weighs_less() -> None:
    shift, advantage, rows = [1.0, 0.5, 0.0, 0.1], [1.0, 1.0, -1.0, -1.0], [0, 0, 1, 1]
    signals = signals_of(shift, advantage, rows=rows)
    plain = losses_of(signals, importance_cap=None).loss_J
    corrected = losses_of(signals, importance_cap=None, bias_correction=True).loss_J
    ratio_J = torch.tensor(shift, dtype=torch.float64).exp()
    weight_J = bias_correction(ratio_J, signals.advantage_J, signals.row_J, clip_low=0.2, clip_high=0.2)
    assert corrected.tolist() == pytest.approx((plain * weight_J).tolist())
    assert float(weight_J[0]) < 0.7
    assert weight_J[2:].tolist() == [1.0, 1.0]


def test_with_turn_ratios_too_the_correction_changes_what_is_learned() -> None:
    """One token up and one down: the turn's ratio is within bounds, and its tokens are not."""
    signals = signals_of([0.5, -0.4, 0.01, 0.01], [1.0, 1.0, 1.0, 1.0], rows=[0, 0, 1, 1])
    plain = losses_of(signals, importance_cap=None, ratio="turn")
    assert plain.values["clip_fraction"].tolist() == [0.0] * 4, "no turn is clipped"
    corrected = losses_of(signals, importance_cap=None, ratio="turn", bias_correction=True).loss_J
    share = (corrected / plain.loss_J).tolist()
    beyond = (math.exp(0.5) - 1.2) / 2
    assert share == pytest.approx([1 / (1 + beyond)] * 2 + [1.0, 1.0])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm.loss.entropy=0", "algorithm.loss.smoothing.high=2"], "a share of entropy, which is 0"),
        (["algorithm.loss.smoothing.low=2"], "leave no band"),
        (["algorithm=sapo", "algorithm.loss.bias_correction=true"], "only surrogate=clip with a bound"),
        (["algorithm=ppo", "algorithm.loss.smoothing.high=2"], "is not there with advantage.baseline=critic"),
    ],
)
def test_what_would_smooth_nothing_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_config(words)
