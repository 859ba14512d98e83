"""The losses of imitation and preference: values, slopes, and the same gradients as the plain formulas."""

import math
from collections import defaultdict

import pytest
import torch
from conftest import BaseFor
from hypothesis import given
from hypothesis import strategies as st
from parts import SKILLED, make_turn
from rows import ROLES, learner_of, near
from torch import Tensor
from torch.nn.functional import logsigmoid

from mas.algorithms.parts.losses.preference import dpo_pair, preference_loss
from mas.config.options import LearnerOptions
from mas.serving.forward import ScoredRow, completion_logits
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.step_metrics import MetricAccumulator

BETA = 0.3
numbers = st.floats(-50, 50)


def test_a_pair_that_nothing_tells_apart_costs_log_2() -> None:
    pair = dpo_pair(-1.0, -1.0, beta=BETA)
    assert (pair.loss, pair.weight, pair.margin) == pytest.approx((math.log(2), BETA / 2, 0.0))


def test_a_pair_by_hand() -> None:
    # margin = 0.5 (1 - (-1)) = 1: -log sigmoid(1) = log(1 + e^-1) = 0.313262, beta sigmoid(-1) = 0.5 x 0.268941.
    pair = dpo_pair(1.0, -1.0, beta=0.5)
    assert (pair.loss, pair.weight, pair.margin) == pytest.approx((0.313262, 0.134471, 1.0), abs=1e-6)


@given(numbers, numbers, st.floats(0.01, 2))
def test_the_pairs_loss_and_slope_are_those_of_autograd(winner: float, loser: float, beta: float) -> None:
    both = torch.tensor([winner, loser], dtype=torch.float64, requires_grad=True)
    loss = -logsigmoid(beta * (both[0] - both[1]))
    loss.backward()
    pair = dpo_pair(winner, loser, beta=beta)
    assert pair.loss == pytest.approx(loss.item(), rel=1e-9, abs=1e-12)
    assert both.grad is not None
    assert both.grad.tolist() == pytest.approx([-pair.weight, pair.weight], rel=1e-9, abs=1e-12)


def test_far_apart_is_no_overflow() -> None:
    assert dpo_pair(-1e5, 1e5, beta=1.0).loss == pytest.approx(2e5)
    assert dpo_pair(-1e5, 1e5, beta=1.0).weight == 1.0
    assert dpo_pair(1e5, -1e5, beta=1.0).loss == 0.0


def test_the_loss_of_an_adapter_by_hand() -> None:
    # Positives: 1 token of -1 and 2 of -2 and -3: mean 2. One pair, margin 0.3 ((-1 + 1) - (-4 + 2)) = 0.6.
    found = preference_loss(
        [[-1.0], [-2.0, -3.0], [-4.0]], [[-1.0], [-2.0, -3.0], [-2.0]], [0, 1], [(0, 2)], sft=0.5, dpo=2.0, beta=BETA
    )
    pair = dpo_pair(0.0, -2.0, beta=BETA)
    assert found.sft == 2.0
    assert found.loss == pytest.approx(0.5 * 2.0 + 2.0 * pair.loss)
    assert found.weights == pytest.approx((0.5 / 3 + 2 * pair.weight, 0.5 / 3, -2 * pair.weight))


def test_nothing_to_learn_from_is_no_loss() -> None:
    found = preference_loss([[-1.0]], [[-2.0]], [], [], sft=1.0, dpo=1.0, beta=BETA)
    assert (found.loss, found.sft, found.weights, found.pairs) == (0.0, None, (0.0,), ())


COMPLETIONS = ((8,), (9, 10, 11), (10, 8), (11, 12, 9, 8))
PROMPTS = ((5, 6, 7), (4, 5, 6, 7, 12, 13))
PAIRS = ((0, 1), (0, 2), (3, 2), (4, 5), (7, 6))
POSITIVES = (0, 3, 4)


def turns_of(role: str, temperature: float) -> list[TrainRow]:
    return [
        TrainRow(
            make_turn(role=role, prompt_ids=prompt, completion_ids=completion, temperature=temperature), role, 0.0, 1.0
        )
        for prompt in PROMPTS
        for completion in COMPLETIONS
    ]


def plain_loss(learner: Learner, rows: list[TrainRow]) -> Tensor:
    """SFT + DPO as the papers write them, one row after the other, with a graph through all of it."""

    def logprobs(row: TrainRow, is_reference: bool) -> Tensor:
        turn = row.turn
        inputs = ScoredRow(
            turn.prompt_ids, turn.completion_ids, None if is_reference else learner.adapters[row.adapter]
        )
        logits_LV = completion_logits(learner.base.model, learner.base.bank, [inputs])[0] / turn.temperature
        return torch.log_softmax(logits_LV, -1).gather(-1, torch.tensor(turn.completion_ids)[:, None])[:, 0]

    now = [logprobs(row, is_reference=False) for row in rows]
    gaps = [own.sum() - logprobs(row, is_reference=True).sum().detach() for own, row in zip(now, rows, strict=True)]
    sft = -torch.cat([now[n] for n in POSITIVES]).mean()
    dpo = torch.stack([-logsigmoid(BETA * (gaps[w] - gaps[x])) for w, x in PAIRS]).mean()
    return 0.7 * sft + 1.3 * dpo


@pytest.mark.parametrize("budget", [8, 16384])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_the_learners_gradient_is_that_of_the_plain_formulas(
    base_for: BaseFor, budget: int, temperature: float
) -> None:
    options = LearnerOptions(micro_batch_tokens=budget)
    learner = learner_of(base_for("relay", SKILLED), options, surrogate="reinforce", importance_cap=None)
    rows = turns_of("planner", temperature)
    now, reference = learner.logprobs(rows), learner.logprobs(rows, is_reference=True)
    loss = preference_loss(
        [now[id(row.turn)] for row in rows],
        [reference[id(row.turn)] for row in rows],
        POSITIVES,
        PAIRS,
        sft=0.7,
        dpo=1.3,
        beta=BETA,
    )
    weighted = [TrainRow(row.turn, row.adapter, weight, 1.0) for row, weight in zip(rows, loss.weights, strict=True)]
    learner.accumulate(weighted, defaultdict(MetricAccumulator), now)
    parameters = list(learner.adapters["planner"].parameters())
    found = torch.cat([tensor.grad.flatten() for tensor in parameters if tensor.grad is not None])
    for tensor in parameters:
        tensor.grad = None
    plain = plain_loss(learner, rows)
    plain.backward()
    wanted = torch.cat([tensor.grad.flatten() for tensor in parameters if tensor.grad is not None])
    assert loss.loss == pytest.approx(plain.item(), rel=1e-6)
    assert near(found, wanted, 1e-6)
    assert all(tensor.grad is None for name in ROLES[1:] for tensor in learner.adapters[name].parameters())
