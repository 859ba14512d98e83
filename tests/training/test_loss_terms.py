"""What the loss of a batch is, and that every term of it has a gradient."""

import math
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn
from rows import CHOICES, ROLES, batch_of, gradients, learner_of, loss_of, near, on_policy, rows_of

from mas.config.options import LearnerOptions
from mas.core.engine import Grammar, Request, Sampling
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.training.batch import train_rows


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.mark.parametrize(
    "limits",
    [{}, {"top_k": 4}, {"top_p": 0.7}, {"min_p": 0.1}, {"grammar": Grammar("regex", "[a-c0-9]{2,4}"), "top_p": 0.9}],
)
async def test_what_was_sampled_is_what_is_trained_at_any_temperature(base: BaseModel, limits: dict[str, Any]) -> None:
    learner = learner_of(base)
    engine = TransformersEngine(base)
    turns = []
    for role, temperature in zip(ROLES, (1.0, 0.5, 2.0), strict=True):
        await engine.store.publish(role, learner.adapters[role])
        sampling = Sampling(temperature=temperature, max_tokens=5, **limits)
        request = Request(prompt_ids=(5, 6, 7), sampling=sampling, seeds=tuple(range(6)), adapter=role)
        for g in await engine.generate(request):
            made = {"completion_ids": g.token_ids, "logprobs": g.logprobs, "temperature": temperature}
            turns.append(make_turn(role=role, supports=g.supports, **made))
    await engine.close()
    metrics = learner.step(batch_of(turns, [(-1.0) ** n for n in range(len(turns))]))
    for role in ROLES:
        assert metrics[role]["ratio"] == pytest.approx(1, abs=1e-4)
        assert metrics[role]["ratio_max"] == pytest.approx(1, abs=1e-3)
        assert metrics[role]["ess"] == pytest.approx(1, abs=1e-4)
        assert metrics[role]["clip_fraction"] == 0


def test_the_loss_is_the_mean_over_rows_of_the_mean_over_their_tokens(base: BaseModel) -> None:
    # On policy every ratio is 1, so the loss is minus the mean advantage: of 4 rows with A = 1, 2, 3 and 6, -3.
    learner = learner_of(base)
    turns = [make_turn(completion_ids=(8, 9, 10, 11)[:length]) for length in (1, 2, 3, 4)]
    rows = on_policy(learner, batch_of(turns, [1.0, 2.0, 3.0, 6.0]))
    assert loss_of(learner, rows) == pytest.approx(-3, abs=1e-4)


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


@pytest.mark.parametrize("choices", [(), (8, 9), CHOICES])
def test_entropy_looks_only_at_legal_tokens(base: BaseModel, choices: tuple[int, ...]) -> None:
    learner = learner_of(base)
    turn = make_turn(completion_ids=(8,), choices=choices, temperature=0.5)
    with torch.no_grad(), base.bank.routing([learner.adapters["executor"]]):
        logits_V = base.model(input_ids=torch.tensor([turn.prompt_ids])).logits[0, -1] / 0.5
    legal = logits_V[list(choices)] if choices else logits_V
    shares = legal.softmax(-1)
    wanted = -(shares * shares.log()).sum().item()
    beside = make_turn(completion_ids=(9,), temperature=0.5, choices=(10, 11, 12))
    alone, both = (learner.step(batch_of(turns, [0.0] * len(turns))) for turns in ([turn], [turn, turn]))
    assert alone["executor"]["entropy"] == pytest.approx(wanted, rel=1e-4)
    assert both["executor"]["entropy"] == pytest.approx(wanted, rel=1e-4)
    assert learner.step(batch_of([turn, beside], [0.0] * 2))["executor"]["entropy"] != pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_kl_is_zero_at_the_reference_and_pulls_back_to_it(base: BaseModel, estimator: str) -> None:
    rows = rows_of(advantage=0.0)
    options = {"kl": 0.5, "kl_estimator": estimator}
    at_reference = learner_of(base, spread=0.0, **options)
    at_rest = gradients(at_reference, rows).norm()
    assert at_reference.step(rows)["planner"]["kl"] == pytest.approx(0, abs=1e-10)
    away = learner_of(base, LearnerOptions(lr=1e-3), **options)
    pull = gradients(away, rows).norm()
    assert pull > 1e-3
    assert at_rest < 1e-6 * pull  # the reference is another pass, which float32 rounds by 1e-7 of what it adds up
    first = away.step(rows)
    for _ in range(5):
        last = away.step(rows)
    assert all(last[name]["kl"] < first[name]["kl"] for name in first)


@pytest.mark.parametrize(
    ("shift", "advantage", "share"), [(0.5, 1.0, 1.0), (0.5, -1.0, 0.0), (-0.5, -1.0, 1.0), (2.0, -1.0, 0.0)]
)
def test_clipped_tokens_are_counted_and_teach_nothing(
    base: BaseModel, shift: float, advantage: float, share: float
) -> None:
    # rho = exp(shift): 1.65 is clipped for A > 0, 0.61 for A < 0; 7.4 with A < 0 is beyond the dual clip of 3.
    learner = learner_of(base, importance_cap=None)
    rows = on_policy(learner, batch_of([make_turn(completion_ids=(8, 9))], [advantage]), shift)
    assert (gradients(learner, rows).norm() == 0) == (share == 1 or shift == 2)
    assert learner.step(rows)["executor"]["clip_fraction"] == share


@pytest.mark.parametrize(("shift", "weight"), [(0.5, math.exp(0.5)), (-0.5, math.exp(-0.5)), (2.0, 2.0)])
def test_samples_of_another_policy_weigh_by_their_importance_up_to_the_cap(
    base: BaseModel, shift: float, weight: float
) -> None:
    # Behaviour log-probabilities `shift` below the learner's: exp(shift) is the weight of every token's gradient.
    learner, turns = learner_of(base), [make_turn(completion_ids=(8, 9)), make_turn(completion_ids=(9,))]
    batch = batch_of(turns, [1.0, -0.5])
    on, off = (gradients(learner, on_policy(learner, batch, value)) for value in (0.0, shift))
    assert near(off, weight * on, 1e-4)
    metrics = learner.step(on_policy(learner, batch, shift))["executor"]
    assert metrics["importance"] == pytest.approx(math.exp(shift), rel=1e-3)
    assert metrics["importance_max"] == pytest.approx(math.exp(shift), rel=1e-3)
    assert metrics["importance_clipped"] == float(shift == 2)
    assert metrics["behaviour_gap"] == pytest.approx(abs(shift), abs=1e-3)


def test_roles_that_share_an_adapter_are_told_apart_in_what_importance_weights_say(base: BaseModel) -> None:
    learner = learner_of(base)
    shifts = {"planner": 0.0, "executor": 0.5, "verifier": 2.0}
    spoken = on_policy(learner, batch_of([make_turn(completion_ids=(8, 9))], [1.0]))[0].turn
    turns = [
        msgspec.structs.replace(spoken, role=role, logprobs=tuple(value - shift for value in spoken.logprobs))
        for role, shift in shifts.items()
    ]
    rows = train_rows(
        turns, [1.0, -0.5, 0.5], dict.fromkeys(ROLES, "executor"), aggregation="seq_mean_token_mean", max_length=8
    )
    metrics = learner.step(rows)["executor"]
    for role, shift in shifts.items():
        assert metrics[f"{role}.importance_max"] == pytest.approx(math.exp(shift), rel=1e-3)
        assert metrics[f"{role}.importance_clipped"] == float(shift == 2)
        assert metrics[f"{role}.ess"] == pytest.approx(1, abs=1e-4)
    assert metrics["ess"] < 0.8


def test_the_greatest_ratio_is_that_of_each_adapter(base: BaseModel) -> None:
    learner = learner_of(base, LearnerOptions(epochs=2, lr=0.05))
    metrics = learner.step(on_policy(learner, rows_of("planner", "executor")))
    assert metrics["planner"]["ratio_max"] != metrics["executor"]["ratio_max"]
    assert all(metrics[role]["ratio_max"] > metrics[role]["ratio"] for role in ("planner", "executor"))


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": "turn", "clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": None},
        {"ratio": "sequence"},
        {"surrogate": "cispo", "clip_low": None, "clip_high": 4.0},
        {"surrogate": "keep_gradient", "clip_high": 0.28},
        {"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4},
        {"surrogate": "sapo"},
    ],
)
def test_on_policy_every_surrogate_has_the_gradient_of_the_plain_one(base: BaseModel, options: dict[str, Any]) -> None:
    plain = learner_of(base)
    rows = on_policy(plain, rows_of())
    assert near(gradients(learner_of(base, **options), rows), gradients(plain, rows), 1e-3)
