"""TOPR: the weights of good and bad answers, by hand."""

import math

import pytest
import torch
from signals import signals_of

from mas.algorithms.topr import ToprOptions, loss
from mas.config.load import load_config


def gradient(shift: list[float], advantages: list[float], rows: list[int], bound: float = 1.0) -> list[float]:
    """d (sum of losses) / d log pi of each token."""
    signals = signals_of(shift, advantages, rows=rows)
    (found,) = torch.autograd.grad(loss(signals, ToprOptions(bound=bound)).sum(), signals.logprobs_J)
    return [float(one) for one in found]


def test_a_bad_answer_weighs_its_whole_ratio_and_a_good_one_weighs_one() -> None:
    shift = [0.1, -0.4, 0.1, -0.4, 0.3]
    found = gradient(shift, [-2.0, -2.0, 0.5, 0.5, 0.0], [0, 0, 1, 1, 2])
    assert found == pytest.approx([2 * math.exp(-0.3)] * 2 + [-0.5] * 2 + [0.0], abs=1e-6)


def test_a_bad_answer_that_became_likelier_weighs_no_more_than_the_bound() -> None:
    assert gradient([0.4, 0.5], [-1.0, -1.0], [0, 0]) == pytest.approx([1.0, 1.0])
    assert gradient([0.4, 0.5], [-1.0, -1.0], [0, 0], bound=2.0) == pytest.approx([2.0, 2.0])
    assert gradient([400.0], [-1.0], [0]) == [1.0]
    assert gradient([-400.0], [-1.0], [0]) == pytest.approx([0.0], abs=1e-12)


def test_the_ratio_is_to_who_sampled_and_not_to_the_start_of_the_step() -> None:
    signals = signals_of([0.0, 0.0], [-1.0, -1.0], rows=[0, 1], behind=[-0.5, 0.0])
    assert loss(signals, ToprOptions()).tolist() == pytest.approx([-math.exp(-0.5), -1.0])


def test_the_preset_sums_over_an_answer_without_bonus_and_cap() -> None:
    chosen = load_config(["algorithm=topr", "algorithm.options.bound=1.5"]).algorithm
    assert (chosen.loss.aggregation, chosen.loss.entropy, chosen.loss.importance_cap) == ("seq_mean_token_sum", 0, None)
    assert (chosen.advantage.scale, chosen.sampler.mode, chosen.options) == ("none", "parallel", {"bound": 1.5})
