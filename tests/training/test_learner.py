"""The learner: whose weights change, by which gradient, and what it refuses to do."""

from typing import Any

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED, make_turn
from rows import CHOICES, ROLES, batch_of, copy_of, gradients, is_same, learner_of, near, on_policy, rows_of

from mas.config.options import LearnerOptions, LossOptions
from mas.core.errors import TrainingError
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow, micro_batches
from mas.training.learner import Learner, LossTerms


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.mark.parametrize("trained", [("planner",), ("executor",), ("planner", "verifier"), ROLES])
def test_every_role_with_tokens_learns_and_no_other_changes_a_bit(base: BaseModel, trained: tuple[str, ...]) -> None:
    learner = learner_of(base)
    before = {name: copy_of(weights) for name, weights in learner.adapters.items()}
    frozen = [tensor.clone() for tensor in base.model.parameters()]
    metrics = learner.step(rows_of(*trained))
    assert set(metrics) == set(trained)
    for name, weights in learner.adapters.items():
        changed = [not torch.equal(now, then) for now, then in zip(weights.parameters(), before[name], strict=True)]
        assert all(changed) if name in trained else not any(changed)
    for name in trained:
        assert metrics[name]["gradient_norm"] > 0
    assert all(torch.equal(now, then) for now, then in zip(base.model.parameters(), frozen, strict=True))
    assert all(parameter.grad is None for parameter in base.model.parameters())


def test_a_role_learns_the_same_whoever_learns_beside_it(base: BaseModel) -> None:
    alone, together = learner_of(base), learner_of(base)
    own = gradients(alone, rows_of("planner"))
    both = gradients(together, rows_of("planner", "executor"))
    assert near(both[: len(own)], own, 1e-5)


def test_the_callers_adapters_stay_as_they_are(base: BaseModel) -> None:
    given = loud_adapter(base, 1)
    before = copy_of(given)
    Learner(base, {"planner": given}, LearnerOptions(), LossOptions()).step(rows_of("planner"))
    assert is_same(given, before)


@pytest.mark.parametrize("budget", [1, 7, 30])
def test_the_size_of_micro_batches_does_not_change_the_update(base: BaseModel, budget: int) -> None:
    learner, rows = learner_of(base, kl=0.1, entropy=0.05), rows_of()
    assert len(list(micro_batches(rows, budget))) > 1
    assert near(gradients(learner, rows, budget), gradients(learner, rows), 1e-5)


def test_metrics_do_not_depend_on_micro_batches(base: BaseModel) -> None:
    small = learner_of(base, LearnerOptions(micro_batch_tokens=7), kl=0.1).step(rows_of())
    large = learner_of(base, kl=0.1).step(rows_of())
    for name in large:
        assert small[name] == pytest.approx(large[name], rel=1e-4, abs=1e-6)


def test_micro_batches_hold_every_row_once_within_their_budget() -> None:
    rows = rows_of(*ROLES, count=20)
    batches = list(micro_batches(rows, 24))
    assert sorted(id(row) for batch in batches for row in batch.rows) == sorted(id(row) for row in rows)
    for batch in batches:
        width = max(len(row.turn.prompt_ids) + len(row.turn.completion_ids) - 1 for row in batch.inputs)
        assert len(batch.inputs) * width <= 24 or len(batch.inputs) == 1
        assert [row.adapter for row in batch.inputs] == sorted(row.adapter for row in batch.inputs)
        for row, index in zip(batch.rows, batch.index, strict=True):
            assert batch.inputs[index].input_key == row.input_key


def test_shared_input_rows_equal_rows_of_their_own(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, rows = learner_of(base, kl=0.1, entropy=0.05), rows_of(choices=CHOICES)
    (shared,) = micro_batches(rows, 10**6)
    with_sharing = gradients(learner, rows)
    monkeypatch.setattr(TrainRow, "input_key", property(id))
    (apart,) = micro_batches(rows, 10**6)
    assert len(shared.inputs) < len(apart.inputs) == len(rows)
    assert near(with_sharing, gradients(learner, rows), 1e-5)


@pytest.mark.parametrize("other", [{"temperature": 2.0}, {"choices": CHOICES}, {"role": "planner"}])
def test_rows_that_differ_in_more_than_the_last_token_share_nothing(other: dict[str, Any]) -> None:
    turns = [make_turn(), make_turn(**other)]
    (batch,) = micro_batches(batch_of(turns, [1.0, -1.0]), 10**6)
    assert len(batch.inputs) == 2


def test_turns_of_frozen_roles_are_no_rows() -> None:
    turns = [make_turn(role="planner"), make_turn(role="stranger")]
    assert [row.turn.role for row in batch_of(turns, [1.0, 1.0])] == ["planner"]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_epochs_and_minibatches_are_optimiser_steps(base: BaseModel, epochs: int, minibatches: int) -> None:
    learner = learner_of(base, LearnerOptions(epochs=epochs, minibatches=minibatches))
    learner.step(rows_of())
    for name in ROLES[:2]:
        steps = {int(state["step"]) for state in learner.optimisers[name].state.values()}
        assert steps == {epochs * minibatches}


@pytest.mark.parametrize("aggregation", ["token_mean", "seq_mean_token_mean", "seq_mean_token_sum"])
def test_every_minibatch_is_a_batch_of_its_own(base: BaseModel, aggregation: str) -> None:
    learner = learner_of(base, LearnerOptions(minibatches=3), aggregation=aggregation)
    rows = batch_of([row.turn for row in rows_of(*ROLES, count=7)], [1.0] * 21, aggregation=aggregation)
    parts = learner._minibatches(rows)
    assert sorted(id(row.turn) for part in parts for row in part) == sorted(id(row.turn) for row in rows)
    for part in parts:
        assert {row.adapter for row in part} == set(ROLES)
        for name in ROLES:
            own = [row for row in part if row.adapter == name]
            total = sum(
                row.weight * (len(row.turn.completion_ids) if "token_mean" in aggregation else 1) for row in own
            )
            assert total == pytest.approx(1)


def test_gradients_are_clipped_to_the_norm_and_reported_unclipped(base: BaseModel) -> None:
    learner = learner_of(base, LearnerOptions(clip_norm=1e-3))
    metrics = learner.step(rows_of())
    for name in ROLES[:2]:
        clipped = torch.cat([tensor.grad.flatten() for tensor in learner.adapters[name].parameters()]).norm()
        assert metrics[name]["gradient_norm"] > 2e-3
        assert clipped.item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stops_before_anything_changes(base: BaseModel, value: float) -> None:
    learner = learner_of(base)
    before = {name: copy_of(weights) for name, weights in learner.adapters.items()}
    rows = rows_of("planner", "executor")
    broken = batch_of([row.turn for row in rows], [value, *[row.advantage for row in rows[1:]]])
    with pytest.raises(TrainingError, match=r"adapter 'planner' is (nan|inf)"):
        learner.step(broken)
    assert all(is_same(weights, before[name]) for name, weights in learner.adapters.items())


def test_a_gradient_in_the_wrong_adapter_is_noticed(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, of = learner_of(base), LossTerms.of.__func__

    def leaking(cls: type[LossTerms], learner: Learner, batch: Any) -> LossTerms:
        terms = of(cls, learner, batch)
        terms.loss = terms.loss + 1e-9 * learner.adapters["verifier"].parameters()[0].sum()
        return terms

    monkeypatch.setattr(LossTerms, "of", classmethod(leaking))
    with pytest.raises(TrainingError, match="'verifier' has no rows in this step and yet a gradient"):
        learner.step(rows_of("planner"))


def test_an_adapter_that_is_not_in_the_forward_pass_is_noticed(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner, routing = learner_of(base), base.bank.routing
    monkeypatch.setattr(base.bank, "routing", lambda rows: routing([None] * len(rows)))
    with pytest.raises(TrainingError, match="'planner' has rows but"):
        learner.step(rows_of("planner"))


def test_advantages_that_cancel_are_no_error(base: BaseModel) -> None:
    learner = learner_of(base)
    learner.step(on_policy(learner, batch_of([make_turn()] * 2, [1.0, -1.0])))
