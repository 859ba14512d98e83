"""Advantages of tokens: each token learns by its own, and packing knows nothing of them."""

from dataclasses import replace

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED
from rows import gradients, learner_of, near, on_policy, rows_of

from mas.config.options import LearnerOptions
from mas.core.errors import TrainingError
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def with_tokens(rows: list[TrainRow], *, even: float, odd: float) -> list[TrainRow]:
    """The rows with one advantage for the tokens at even places and another for those at odd ones."""
    return [
        replace(row, advantage=9.0, advantages=[(even, odd)[place % 2] for place in range(len(row.turn.logprobs))])
        for row in rows
    ]


def test_equal_advantages_of_all_tokens_are_the_turns_bit_by_bit(base: BaseModel) -> None:
    rows = rows_of()
    spelled = [replace(row, advantage=9.0, advantages=(row.advantage,) * len(row.turn.logprobs)) for row in rows]
    assert torch.equal(gradients(learner_of(base), spelled), gradients(learner_of(base), rows))


@pytest.mark.parametrize(
    "options",
    [LearnerOptions(), LearnerOptions(micro_batch_tokens=7), LearnerOptions(pack=False, share_prompts=False)],
    ids=["packed", "small", "padded"],
)
def test_every_token_learns_by_its_own_advantage(base: BaseModel, options: LearnerOptions) -> None:
    # On policy the gradient is linear in each token's advantage.
    rows = on_policy(learner_of(base), rows_of())
    first = gradients(learner_of(base), with_tokens(rows, even=1.0, odd=0.0))
    second = gradients(learner_of(base), with_tokens(rows, even=0.0, odd=1.0))
    both = gradients(learner_of(base, options), with_tokens(rows, even=2.0, odd=-3.0))
    assert near(both, 2 * first - 3 * second, 1e-4)
    assert not near(both, 2 * first, 0.1)


def test_a_row_with_too_few_advantages_is_refused(base: BaseModel) -> None:
    rows = rows_of()
    rows[1] = replace(rows[1], advantages=(1.0,))
    with pytest.raises(TrainingError, match="has 2 tokens but 1 advantages"):
        gradients(learner_of(base), rows)
