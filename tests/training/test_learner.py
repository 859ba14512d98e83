"""The learner: whose weights change, by which gradient, and what it refuses to do."""

from typing import Any

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED, make_turn
from torch import Tensor

from mas.config.options import LearnerOptions, LossOptions
from mas.core.engine import Request, Sampling
from mas.core.errors import TrainingError
from mas.core.records import Turn
from mas.serving.forward import Row, completion_logits
from mas.serving.lora import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.training.batch import TrainRow, micro_batches, train_rows
from mas.training.learner import Learner, LossTerms
from mas.training.losses.policy import entropy

ROLES = ("planner", "executor", "verifier")
CHOICES = (8, 9, 10, 11)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def learner_of(base: BaseModel, options: LearnerOptions | None = None, *, spread: float = 0.2, **loss: Any) -> Learner:
    adapters = {name: loud_adapter(base, seed, spread) for seed, name in enumerate(ROLES)}
    return Learner(base, adapters, options or LearnerOptions(), LossOptions(**{"entropy": 0.0} | loss))


def rows_of(*roles: str, count: int = 12, advantage: float = 1.0, choices: tuple[int, ...] = ()) -> list[TrainRow]:
    """Rows of different lengths, some of which read the same input."""
    turns, advantages = [], []
    for role in roles or ROLES[:2]:
        for index in range(count):
            prompt = (5, 6, 7) if index % 3 else (4, 5, 6, 7, 12, 13)
            completion = (8, 9 + index % 4) if index % 2 else (8 + index % 3, 11, 9, 10)[: 1 + index % 4]
            turns.append(make_turn(role=role, prompt_ids=prompt, completion_ids=completion, choices=choices))
            advantages.append(advantage * (index - count / 2 + 0.5) / count)
    return batch_of(turns, advantages)


def batch_of(turns: list[Turn], advantages: list[float], **options: Any) -> list[TrainRow]:
    adapter_of = {name: name for name in ROLES}
    return train_rows(
        turns, advantages, adapter_of, **{"aggregation": "seq_mean_token_mean", "max_length": 8} | options
    )


def copy_of(weights: AdapterWeights) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in weights.parameters()]


def is_same(weights: AdapterWeights, before: list[Tensor]) -> bool:
    return all(torch.equal(now, then) for now, then in zip(weights.parameters(), before, strict=True))


def gradients(learner: Learner, rows: list[TrainRow], budget: int = 10**6) -> Tensor:
    """All gradients of one batch as one vector."""
    for weights in learner.adapters.values():
        for tensor in weights.parameters():
            tensor.grad = None
    for batch in micro_batches(rows, budget):
        LossTerms.of(learner, batch).loss.backward()
    parameters = [tensor for weights in learner.adapters.values() for tensor in weights.parameters()]
    return torch.cat([tensor.grad.flatten() for tensor in parameters if tensor.grad is not None])


def near(value: Tensor, wanted: Tensor, relative: float) -> bool:
    return bool((value - wanted).norm() <= relative * wanted.norm()) and bool(wanted.norm() > 0)


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


async def test_what_was_sampled_is_what_is_trained_at_any_temperature(base: BaseModel) -> None:
    learner = learner_of(base)
    engine = TransformersEngine(base)
    turns = []
    for role, temperature in zip(ROLES, (1.0, 0.5, 2.0), strict=True):
        engine.publish(role, learner.adapters[role])
        sampling = Sampling(temperature=temperature, max_tokens=5)
        request = Request(prompt_ids=(5, 6, 7), sampling=sampling, seeds=tuple(range(6)), adapter=role)
        for g in await engine.generate(request):
            made = {"completion_ids": g.token_ids, "logprobs": g.logprobs, "temperature": temperature}
            turns.append(make_turn(role=role, **made))
    await engine.close()
    metrics = learner.step(batch_of(turns, [(-1.0) ** n for n in range(len(turns))]))
    for role in ROLES:
        assert metrics[role]["ratio"] == pytest.approx(1, abs=1e-4)
        assert metrics[role]["ratio_max"] == pytest.approx(1, abs=1e-3)
        assert metrics[role]["ess"] == pytest.approx(1, abs=1e-4)
        assert metrics[role]["clip_fraction"] == 0


def on_policy(learner: Learner, rows: list[TrainRow], shift: float = 0.0) -> list[TrainRow]:
    """The rows with log-probabilities of the learner's own policy, minus a shift."""
    fresh = []
    for row in rows:
        turn = row.turn
        with torch.no_grad():
            inputs = [Row(turn.prompt_ids, turn.completion_ids, learner.adapters[row.adapter])]
            logits_LV = completion_logits(learner.base.model, learner.base.bank, inputs)[0]
        tokens_L1 = torch.tensor(turn.completion_ids)[:, None]
        own = torch.log_softmax(logits_LV, -1).gather(-1, tokens_L1)[:, 0] - shift
        same = {"prompt_ids": turn.prompt_ids, "completion_ids": turn.completion_ids, "choices": turn.choices}
        fresh.append(make_turn(role=turn.role, logprobs=tuple(own.tolist()), **same))
    return batch_of(fresh, [row.advantage for row in rows])


def test_the_loss_is_the_mean_over_rows_of_the_mean_over_their_tokens(base: BaseModel) -> None:
    # On policy every ratio is 1, so the loss is minus the mean advantage: of 4 rows with A = 1, 2, 3 and 6, -3.
    learner = learner_of(base)
    turns = [make_turn(completion_ids=(8, 9, 10, 11)[:length]) for length in (1, 2, 3, 4)]
    rows = on_policy(learner, batch_of(turns, [1.0, 2.0, 3.0, 6.0]))
    (batch,) = micro_batches(rows, 10**6)
    assert LossTerms.of(learner, batch).loss.item() == pytest.approx(-3, abs=1e-4)


def test_weights_of_the_loss_are_per_adapter() -> None:
    # Two planner rows of 1 and 3 tokens, one executor row of 2: 1/2 and 1/6 a token for the one, 1/2 for the other.
    turns = [make_turn(role=role, completion_ids=ids) for role, ids in (("planner", (8,)), ("executor", (8, 9)))]
    turns.append(make_turn(role="planner", completion_ids=(8, 9, 10)))
    weights = {(row.adapter, len(row.turn.completion_ids)): row.weight for row in batch_of(turns, [1.0] * 3)}
    assert weights == {("planner", 1): 1 / 2, ("planner", 3): 1 / 6, ("executor", 2): 1 / 2}


def test_repeating_a_batch_does_not_change_its_gradient(base: BaseModel) -> None:
    learner, rows = learner_of(base), rows_of()
    twice = batch_of([row.turn for row in rows] * 2, [row.advantage for row in rows] * 2)
    assert near(gradients(learner, twice), gradients(learner, rows), 1e-5)


def test_turns_of_frozen_roles_are_no_rows() -> None:
    turns = [make_turn(role="planner"), make_turn(role="stranger")]
    assert [row.turn.role for row in batch_of(turns, [1.0, 1.0])] == ["planner"]


def test_a_better_candidate_becomes_more_likely_and_a_worse_one_less(base: BaseModel) -> None:
    learner = learner_of(base, LearnerOptions(lr=1e-3))
    rows = on_policy(learner, batch_of([make_turn(completion_ids=(8,)), make_turn(completion_ids=(9,))], [1.0, -1.0]))
    before = [row.turn.logprobs[0] for row in rows]
    learner.step(rows)
    after = [row.turn.logprobs[0] for row in on_policy(learner, rows)]
    assert after[0] > before[0]
    assert after[1] < before[1]


@pytest.mark.parametrize("choices", [(), CHOICES])
def test_the_entropy_bonus_has_a_gradient_and_raises_entropy(base: BaseModel, choices: tuple[int, ...]) -> None:
    rows = rows_of(advantage=0.0, choices=choices)
    assert gradients(learner_of(base), rows).norm() == 0
    learner = learner_of(base, LearnerOptions(lr=1e-3), entropy=0.1)
    assert gradients(learner, rows).norm() > 1e-6
    first = learner.step(rows)
    for _ in range(5):
        last = learner.step(rows)
    assert all(last[name]["entropy"] > first[name]["entropy"] for name in first)


def test_entropy_looks_only_at_legal_tokens() -> None:
    # Over logits log(1, 2, 3, 4): legal 0 and 1 have probabilities 1/3 and 2/3; H = -(ln(1/3) + 2 ln(2/3)) / 3.
    logits = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]).log().requires_grad_()
    allowed = torch.tensor([[True, True, False, False]])
    value = entropy(logits, allowed)
    assert value.item() == pytest.approx(0.6365142)
    value.sum().backward()
    assert logits.grad is not None
    assert logits.grad[0, 0, 2:].tolist() == [0, 0]
    assert torch.isfinite(logits.grad).all()
    assert entropy(logits).item() == pytest.approx(1.2798542)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_kl_is_zero_at_the_reference_and_pulls_back_to_it(base: BaseModel, estimator: str) -> None:
    rows = rows_of(advantage=0.0)
    options = {"kl": 0.5, "kl_estimator": estimator}
    at_reference = learner_of(base, spread=0.0, **options)
    assert gradients(at_reference, rows).norm() < 1e-6
    assert at_reference.step(rows)["planner"]["kl"] == pytest.approx(0, abs=1e-10)
    away = learner_of(base, LearnerOptions(lr=1e-3), **options)
    assert gradients(away, rows).norm() > 1e-3
    first = away.step(rows)
    for _ in range(5):
        last = away.step(rows)
    assert all(last[name]["kl"] < first[name]["kl"] for name in first)


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


@pytest.mark.parametrize(
    ("shift", "advantage", "share"), [(0.5, 1.0, 1.0), (0.5, -1.0, 0.0), (-0.5, -1.0, 1.0), (2.0, -1.0, 0.0)]
)
def test_clipped_tokens_are_counted_and_teach_nothing(
    base: BaseModel, shift: float, advantage: float, share: float
) -> None:
    # rho = exp(shift): 1.65 is clipped for A > 0, 0.61 for A < 0; 7.4 with A < 0 is beyond the dual clip of 3.
    learner = learner_of(base)
    rows = on_policy(learner, batch_of([make_turn(completion_ids=(8, 9))], [advantage]), shift)
    assert (gradients(learner, rows).norm() == 0) == (share == 1 or shift == 2)
    assert learner.step(rows)["executor"]["clip_fraction"] == share


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
