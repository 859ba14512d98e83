"""The critic: it learns returns, and shares nothing with the policy but the base."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED
from rows import ROLES, copy_of, gradients, is_same, learner_of, near, rows_of

from mas.algorithms.parts.advantages.gae import CriticOptions, explained_variance
from mas.config.options import LearnerOptions
from mas.core.errors import CheckpointError, TrainingError
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.critic import Critic, value_loss


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def critic_of(base: BaseModel, learner: LearnerOptions | None = None, *, loud: bool = False, **options: Any) -> Critic:
    """A critic of new adapters; `loud`: whose values differ from token to token."""
    critic = Critic(learner_of(base, learner), CriticOptions(**{"epochs": 1, "minibatches": 1} | options), seed=0)
    if loud:
        with torch.no_grad():
            for index, name in enumerate(critic.adapters):
                for mine, other in zip(
                    critic.adapters[name].parameters(), loud_adapter(base, 30 + index).parameters(), strict=True
                ):
                    mine.copy_(other)
                critic.heads[name][0].normal_(generator=torch.Generator().manual_seed(index))
                critic.heads[name][1].fill_(0.5)
    return critic


def targets_of(rows: Sequence[TrainRow]) -> dict[int, list[float]]:
    """Numbers that depend on the prompt, on what was said, and on the place."""
    return {
        id(row.turn): [
            (1.0 if len(row.turn.prompt_ids) == 3 else -1.0)
            + (0.5 if place and row.turn.completion_ids[0] > 8 else 0.0)
            for place in range(len(row.turn.completion_ids))
        ]
        for row in rows
    }


def critic_gradients(critic: Critic, rows: Sequence[TrainRow]) -> torch.Tensor:
    critic.step(rows, targets_of(rows), critic.values(rows), lr_scale=0.0)
    found = [one.grad.flatten() for own in critic.parameters.values() for one in own if one.grad is not None]
    return torch.cat(found)


def test_a_new_critic_expects_nothing(base: BaseModel) -> None:
    rows = rows_of()
    values = critic_of(base).values(rows)
    assert values == {id(row.turn): [0.0] * len(row.turn.completion_ids) for row in rows}


def test_a_value_is_read_at_the_last_hidden_state_before_its_token(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of()
    values = critic.values(rows)
    for row in rows:
        prompt, completion = row.turn.prompt_ids, row.turn.completion_ids
        weight_D, bias = critic.heads[row.adapter]
        with torch.no_grad(), base.bank.routing([critic.adapters[row.adapter]]):
            ids_1T = torch.tensor([[*prompt, *completion[:-1]]])
            hidden_TD = base.model.base_model(input_ids=ids_1T, use_cache=False).last_hidden_state[0]
        alone = hidden_TD[len(prompt) - 1 :] @ weight_D + bias
        assert values[id(row.turn)] == pytest.approx(alone.tolist(), abs=1e-4)


def test_it_learns_the_returns_of_a_batch(base: BaseModel) -> None:
    critic, rows = critic_of(base, epochs=40), rows_of()
    wanted = targets_of(rows)
    for _ in range(2):
        critic.step(rows, wanted, critic.values(rows))
    values = critic.values(rows)
    for name in ROLES[:2]:
        own = [id(row.turn) for row in rows if row.adapter == name]
        found = [value for turn in own for value in values[turn]]
        assert explained_variance(found, [one for turn in own for one in wanted[turn]]) > 0.8


def test_no_gradient_of_the_critic_reaches_policy_or_base_and_none_of_the_policy_the_critic(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of()
    learner = critic.learner
    policies = {name: copy_of(weights) for name, weights in learner.adapters.items()}
    frozen = [one.clone() for one in base.model.parameters()]
    critic.step(rows, targets_of(rows), critic.values(rows))
    assert all(is_same(weights, policies[name]) for name, weights in learner.adapters.items())
    assert all(one.grad is None for weights in learner.adapters.values() for one in weights.parameters())
    assert not any(optimiser.state for optimiser in learner.optimisers.values())
    critics = {name: copy_of(weights) for name, weights in critic.adapters.items()}
    slopes = [one.grad.clone() for own in critic.parameters.values() for one in own if one.grad is not None]
    learner.step(rows)
    assert all(is_same(weights, critics[name]) for name, weights in critic.adapters.items())
    after = [one.grad for own in critic.parameters.values() for one in own if one.grad is not None]
    assert all(torch.equal(one, other) for one, other in zip(slopes, after, strict=True))
    assert all(torch.equal(one, then) for one, then in zip(base.model.parameters(), frozen, strict=True))
    assert all(one.grad is None for one in base.model.parameters())


def test_the_policys_gradient_is_the_same_beside_a_critic_bit_by_bit(base: BaseModel) -> None:
    critic, rows = critic_of(base), rows_of()
    critic.step(rows, targets_of(rows), critic.values(rows))
    assert torch.equal(gradients(critic.learner, rows), gradients(learner_of(base), rows))


def test_the_critic_of_each_adapter_with_rows_learns_and_no_other(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of("planner", "verifier")
    before = {name: copy_of(weights) for name, weights in critic.adapters.items()}
    metrics = critic.step(rows, targets_of(rows), critic.values(rows))
    assert set(metrics) == {"planner", "verifier"}
    assert {name for name, weights in critic.adapters.items() if not is_same(weights, before[name])} == set(metrics)
    assert all(metrics[name]["critic_gradient_norm"] > 0 for name in metrics)


def test_a_new_adapter_learns_once_its_head_is_not_0(base: BaseModel) -> None:
    critic, rows = critic_of(base, epochs=2), rows_of("planner")
    before = copy_of(critic.adapters["planner"])
    critic.step(rows, targets_of(rows), critic.values(rows))
    assert not is_same(critic.adapters["planner"], before)


def test_tokens_behind_the_targets_teach_nothing(base: BaseModel) -> None:
    # V = 0, so the loss is the mean of squared targets: of first tokens alone, 12 of 1 or -1 per adapter.
    rows = rows_of()
    first = {turn: own[:1] for turn, own in targets_of(rows).items()}
    critic = critic_of(base, level="turn")
    metrics = critic.step(rows, first, critic.values(rows))
    assert metrics["planner"]["value_loss"] == pytest.approx(1.0)
    bias = critic.heads["planner"][1].grad
    # d/db of mean (V - R)^2 = -2 mean R; 8 of 12 prompts are short: mean R = 1/3.
    assert bias is not None
    assert critic.learner.options.clip_norm == 1.0
    norm = metrics["planner"]["critic_gradient_norm"]
    assert float(bias) * max(norm, 1.0) == pytest.approx(-2 / 3, rel=1e-3)


@pytest.mark.parametrize("budget", [1, 7, 30])
def test_the_size_of_micro_batches_does_not_change_the_update(base: BaseModel, budget: int) -> None:
    rows = rows_of()
    small = critic_gradients(critic_of(base, LearnerOptions(micro_batch_tokens=budget), loud=True), rows)
    assert near(small, critic_gradients(critic_of(base, loud=True), rows), 1e-5)


def test_the_rate_of_a_step_is_scaled(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of("planner")
    before = copy_of(critic.adapters["planner"])
    critic.step(rows, targets_of(rows), critic.values(rows), lr_scale=0.0)
    assert is_same(critic.adapters["planner"], before)


def test_the_next_step_after_restoring_is_bit_equal(base: BaseModel) -> None:
    rows = rows_of()
    critic, other = critic_of(base), critic_of(base, loud=True)
    critic.step(rows, targets_of(rows), critic.values(rows))
    other.step(rows, targets_of(rows), other.values(rows))
    other.restore({name: one.clone() for name, one in critic.tensors().items()})
    told = [one.step(rows, targets_of(rows), one.values(rows)) for one in (critic, other)]
    assert told[0] == told[1]
    assert critic.values(rows) == other.values(rows)
    after = critic.tensors()
    assert after.keys() == other.tensors().keys()
    assert all(torch.equal(one, after[name]) for name, one in other.tensors().items())


def test_a_state_of_another_critic_is_refused_and_nothing_changes(base: BaseModel) -> None:
    critic = critic_of(base, loud=True)
    tensors = critic.tensors()
    with pytest.raises(CheckpointError, match=r"another critic: \d+ of \d+ tensors .* go on with model.lora"):
        critic.restore({})
    with pytest.raises(CheckpointError, match="'planner/0' first"):
        critic.restore({name: one + 1 for name, one in tensors.items()} | {"planner/0": torch.zeros(1)})
    assert all(torch.equal(one, tensors[name]) for name, one in critic.tensors().items())


def test_a_target_that_is_not_finite_stops_before_anything_changes(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of("planner", "executor")
    before = critic.tensors()
    before = {name: one.clone() for name, one in before.items()}
    wanted = targets_of(rows)
    wanted[id(rows[0].turn)][0] = float("inf")
    with pytest.raises(TrainingError, match="the gradient of critic 'planner' is"):
        critic.step(rows, wanted, critic.values(rows))
    assert all(torch.equal(one, before[name]) for name, one in critic.tensors().items())


def test_it_works_where_layers_are_computed_again(base: BaseModel) -> None:
    rows = rows_of()
    again = critic_gradients(critic_of(base, LearnerOptions(recompute_layers=True), loud=True), rows)
    assert near(again, critic_gradients(critic_of(base, loud=True), rows), 1e-5)


def test_the_value_loss_is_the_squared_error_and_the_greater_one_with_a_bound() -> None:
    # R = 1, before 0, bound 0.2: V = 0.1 is inside; 0.5 counts as 0.2, whose error is greater; -0.5 counts as -0.2,
    # whose error is smaller: its own counts.
    value_J = torch.tensor([0.1, 0.5, -0.5], requires_grad=True)
    before_J, target_J = torch.zeros(3), torch.ones(3)
    assert value_loss(value_J, before_J, target_J, None).tolist() == pytest.approx([0.81, 0.25, 2.25])
    loss_J = value_loss(value_J, before_J, target_J, 0.2)
    assert loss_J.tolist() == pytest.approx([0.81, 0.64, 2.25])
    loss_J.sum().backward()
    assert value_J.grad is not None
    assert value_J.grad.tolist() == pytest.approx([-1.8, 0.0, -3.0])


def test_a_bound_holds_back_what_several_epochs_would_move(base: BaseModel) -> None:
    rows = rows_of("planner")
    moved = []
    for clip in (None, 0.02):
        critic = critic_of(base, epochs=20, clip=clip)
        critic.step(rows, targets_of(rows), critic.values(rows))
        moved.append(max(abs(value) for own in critic.values(rows).values() for value in own))
    assert moved[1] < 0.5 * moved[0]


def test_rows_with_other_advantages_have_the_same_values(base: BaseModel) -> None:
    critic, rows = critic_of(base, loud=True), rows_of()
    assert critic.values(rows) == critic.values([replace(row, advantage=7.0, weight=0.0) for row in rows])
