"""The learner: whose weights change, by which gradient, and what it refuses to do."""

import itertools
from typing import Any

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED, make_turn
from rows import ROLES, batch_of, copy_of, gradients, is_same, learner_of, near, on_policy, rows_of

from mas.algorithms.parts.losses.tokens import LossOptions, TokenLosses
from mas.config.options import LearnerOptions
from mas.core.errors import TrainingError
from mas.serving.adapter_weights import Segment
from mas.serving.model import BaseModel
from mas.training.batch import split_minibatches
from mas.training.batch_tensors import BatchTensors
from mas.training.learner import Learner, pack_cost_of


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
    small = learner_of(base, LearnerOptions(micro_batch_tokens=budget), kl=0.1, entropy=0.05)
    rows = rows_of()
    assert len(small.micro_batches(rows)) > 1
    assert near(gradients(small, rows), gradients(learner_of(base, kl=0.1, entropy=0.05), rows), 1e-5)


def test_metrics_do_not_depend_on_micro_batches(base: BaseModel) -> None:
    small = learner_of(base, LearnerOptions(micro_batch_tokens=7), kl=0.1).step(rows_of())
    large = learner_of(base, kl=0.1).step(rows_of())
    for name in large:
        assert small[name] == pytest.approx(large[name], rel=1e-4, abs=1e-6)


def test_roles_share_a_micro_batch(base: BaseModel) -> None:
    (batch,) = learner_of(base).micro_batches(rows_of(*ROLES))
    assert {row.adapter for row in batch.rows} == set(ROLES)


def test_turns_of_frozen_roles_are_no_rows() -> None:
    turns = [make_turn(role="planner"), make_turn(role="stranger")]
    assert [row.turn.role for row in batch_of(turns, [1.0, 1.0])] == ["planner"]


@pytest.mark.parametrize(("epochs", "minibatches"), [(1, 1), (2, 1), (1, 2), (1, 3), (2, 3)])
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
    parts = split_minibatches(rows, learner.options.minibatches, learner.loss)
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
    learner = learner_of(base)
    losses_of = learner._losses

    def leaking(*args: Any) -> TokenLosses:
        losses = losses_of(*args)
        return TokenLosses(losses.loss_J + 1e-9 * learner.adapters["verifier"].parameters()[0].sum(), losses.values)

    monkeypatch.setattr(learner, "_losses", leaking)
    with pytest.raises(TrainingError, match="'verifier' has no rows in this step and yet a gradient"):
        learner.step(rows_of("planner"))


def test_an_adapter_that_is_not_in_the_forward_pass_is_noticed(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = learner_of(base)
    monkeypatch.setattr(BatchTensors, "segments", lambda feed, adapters: [Segment(None, 0, feed.batch.tokens)])
    with pytest.raises(TrainingError, match="'planner' has rows but"):
        learner.step(rows_of("planner"))


def test_advantages_that_cancel_are_no_error(base: BaseModel) -> None:
    learner = learner_of(base)
    learner.step(on_policy(learner, batch_of([make_turn()] * 2, [1.0, -1.0])))


@pytest.mark.parametrize("minibatches", [1, 3])
def test_a_trajectory_stays_in_one_micro_batch_and_one_minibatch(base: BaseModel, minibatches: int) -> None:
    options = LearnerOptions(minibatches=minibatches, micro_batch_tokens=8, share_prompts=False, join_turns=False)
    learner = learner_of(base, options, ratio="sequence", dual_clip=None)
    turns = [make_turn(prompt_ids=(5, 6, 7 + n), completion_ids=(8, 9), trajectory=f"t{n % 4}") for n in range(12)]
    parts = split_minibatches(batch_of(turns, [1.0] * 12), learner.options.minibatches, learner.loss)
    assert len(parts) == minibatches
    seen: list[str] = []
    for part in parts:
        for batch in learner.micro_batches(part):
            seen += {row.turn.trajectory for row in batch.rows}
    assert sorted(seen) == ["t0", "t1", "t2", "t3"]


def test_a_beginning_that_all_prompts_share_does_not_tie_all_trajectories_into_one_micro_batch(base: BaseModel) -> None:
    learner = learner_of(base, LearnerOptions(micro_batch_tokens=40), ratio="sequence")
    turns = [
        make_turn(prompt_ids=(4, 5, 6, 20 + g, 30 + t), completion_ids=(8 + k, 9), trajectory=f"t{k}", group=f"g{g}")
        for g, t, k in itertools.product(range(6), range(3), range(2))
    ]
    batches = learner.micro_batches(batch_of(turns, [1.0] * len(turns)))
    # A group is 4 tokens, then 3 turns of 1 + 2 x 1: 13; three of them fit.
    assert [batch.tokens for batch in batches] == [39, 39]


@pytest.mark.parametrize(("epochs", "minibatches"), [(4, 1), (1, 6)])
def test_the_policy_at_the_start_of_the_step_is_that_of_all_its_updates(
    base: BaseModel, epochs: int, minibatches: int
) -> None:
    # Samples of exactly the learner's policy: the weight start/behaviour stays 1 while the ratio moves away from 1.
    learner = learner_of(base, LearnerOptions(epochs=epochs, minibatches=minibatches, lr=1e-2))
    metrics = learner.step(on_policy(learner, rows_of("planner")))["planner"]
    assert metrics["importance"] == pytest.approx(1, abs=1e-4)
    assert metrics["ess"] == pytest.approx(1, abs=1e-4)
    assert metrics["ratio_max"] > 1.05


def test_log_probabilities_are_those_of_the_policy_or_of_the_base(base: BaseModel) -> None:
    learner = learner_of(base)
    rows = on_policy(learner, rows_of())
    bare = on_policy(learner_of(base, spread=0.0), rows)
    now, reference = learner.logprobs(rows), learner.logprobs(rows, is_reference=True)
    for row, other in zip(rows, bare, strict=True):
        assert list(now[id(row.turn)]) == pytest.approx(row.turn.logprobs, abs=1e-4)
        assert list(reference[id(row.turn)]) == pytest.approx(other.turn.logprobs, abs=1e-4)
    assert now != reference


def test_a_token_costs_the_weights_it_passes_and_a_pair_of_tokens_both_products_of_attention(base: BaseModel) -> None:
    cost, config = pack_cost_of(base), base.model.config
    projections = config.head_dim * (2 * config.num_attention_heads + 2 * config.num_key_value_heads)
    layer = config.hidden_size * (projections + 3 * config.intermediate_size)
    assert cost.token == config.num_hidden_layers * layer + config.vocab_size * config.hidden_size
    assert cost.pair == 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim


def test_a_turn_without_a_token_is_named() -> None:
    with pytest.raises(TrainingError, match="turn 'g/t' of role 'planner' has no token to learn from"):
        batch_of([make_turn(role="planner", completion_ids=())], [1.0])


@pytest.mark.parametrize("fused", [True, False])
def test_the_optimiser_is_fused_as_the_options_say(base: BaseModel, fused: bool) -> None:
    learner = learner_of(base, LearnerOptions(fused=fused))
    assert {optimiser.defaults["fused"] for optimiser in learner.optimisers.values()} == {fused}


def test_the_reference_keeps_the_share_ema_of_itself_and_follows_who_learns_alone(base: BaseModel) -> None:
    learner = learner_of(base, kl=0.1, reference={"ema": 0.75})
    before = copy_of(learner.references["planner"])
    still = copy_of(learner.references["executor"])
    learner.step(rows_of("planner"))
    for mine, then, now in zip(
        learner.references["planner"].parameters(), before, learner.adapters["planner"].parameters(), strict=True
    ):
        assert not torch.equal(then, now)
        assert torch.allclose(mine, 0.75 * then + 0.25 * now, atol=1e-8)
    assert is_same(learner.references["executor"], still)
