"""Drawing from counters: uniform, and independent over seeds and positions."""

import numpy as np
import pytest
import torch

from mas.serving.logits import draw_tokens, uniforms

SEEDS = range(4000)


@pytest.mark.parametrize("position", [0, 1, 7])
def test_draws_are_uniform(position: int) -> None:
    # The mean of 4000 uniforms has a standard deviation of 0.2887 / sqrt(4000) = 0.0046; a tenth has 400 +- 19.
    drawn = uniforms(SEEDS, [position] * len(SEEDS))
    assert abs(drawn.mean() - 0.5) < 0.02
    counts = np.histogram(drawn, bins=10, range=(0, 1))[0]
    assert abs(counts - 400).max() < 95


def test_positions_and_neighbouring_seeds_are_uncorrelated() -> None:
    # A correlation of 4000 independent pairs has a standard deviation of 1 / sqrt(4000) = 0.016.
    first, second, third = (uniforms(SEEDS, [position] * len(SEEDS)) for position in range(3))
    for one, other in (
        (first, second),
        (first, third),
        (second, third),
        (first[:-1], first[1:]),
        (first[1:], second[:-1]),
    ):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.08


def test_an_impossible_token_is_never_drawn() -> None:
    logits_NV = torch.full((4000, 3), -torch.inf)
    logits_NV[:, 1] = 0.0
    tokens_N, logprobs_N = draw_tokens(logits_NV, [1.0] * 4000, SEEDS, [0] * 4000)
    assert set(tokens_N.tolist()) == {1}
    assert set(logprobs_N.tolist()) == {0.0}
