"""Reward models: what they learn, what they pay, and that policy and model do not touch each other."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from hypothesis import given
from hypothesis import strategies as st
from mixed import mixed
from oracles import ORACLES, near
from parts import SKILLED, make_turn
from rows import ROLES, learner_of
from torch import Tensor

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.transforms import RewardModelOptions, preference_loss, trajectory_score
from mas.config.load import load_config
from mas.core.records import Episode, Turn, facts_of
from mas.serving.model import BaseModel
from mas.training.learner import Learner
from mas.training.reward_models import ImplicitModel, ProgressModel, StepScores, Trajectory, trajectories_of
from mas.training.sampling.episode_facts import Grounded
from mas.training.updates.build_update import build_reward_model, build_update
from mas.training.updates.ppo import Ppo
from mas.training.updates.rewarded import Rewarded, payments

ADAPTER_OF = {name: name for name in ROLES[:2]}
GOLDEN = {"17": ORACLES["17_spa_rl"], "18": ORACLES["18_oprl"], "34": ORACLES["34_clip_delta"]}
PROGRESS = RewardModelOptions(kind="progress")
IMPLICIT = RewardModelOptions(kind="implicit")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def said(
    role: str, name: str, completions: Sequence[tuple[int, ...]], *, won: bool, grounded: Sequence[bool] = ()
) -> Episode:
    """An episode in which one agent spoke; a prompt shows what it said before."""
    turns: list[Turn] = []
    prompt: tuple[int, ...] = (5, 6, 7)
    for place, ids in enumerate(completions):
        turn = make_turn(role=role, group=f"task/{role}", trajectory=name, prompt_ids=prompt, completion_ids=ids)
        flag = facts_of(Grounded(is_grounded=grounded[place] if grounded else True))
        turns.append(
            msgspec.structs.replace(
                turn, id=f"{role}/{name}/{place}", turn=place, rewards={"team.won": float(won)}, facts=flag
            )
        )
        prompt = (*prompt, *ids, 12)
    return Episode(
        id=name, task="t", success=won, turns=tuple(turns), lines=(), rewards={}, prompt_tokens=0,
        completion_tokens=0, calls=0,
    )  # fmt: skip


def batch() -> list[Episode]:
    """Successes and failures of two agents that differ in what was said, early and late."""
    return [
        said("planner", "a", [(8,), (9, 10), (11,)], won=True),
        said("planner", "b", [(8,), (10, 9), (13,)], won=False),
        said("planner", "c", [(13,), (13,)], won=False),
        said("executor", "d", [(8, 9), (10,)], won=True),
        said("executor", "e", [(9, 9), (13,)], won=False),
    ]


def options_of(preset: str, *overrides: str) -> AlgorithmOptions:
    return load_config(mixed(f"algorithm={preset}", "scenario=plan_path", *overrides)).algorithm


def rewarded(base: BaseModel, algorithm: AlgorithmOptions) -> Rewarded:
    update = build_update(learner_of(base, spread=0.05), algorithm, seed=0)
    assert isinstance(update, Rewarded)
    return update


def policy_of(learner: Learner) -> list[Tensor]:
    return [one.detach().clone() for weights in learner.adapters.values() for one in weights.parameters()]


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("role", ["planner", "executor"])
def test_contributions_learn_to_add_up_to_the_outcome(base: BaseModel, role: str) -> None:
    model = ProgressModel(learner_of(base, spread=0.05), RewardModelOptions(kind="progress", epochs=25), 0)
    trajectories = trajectories_of([one for one in batch() if one.turns[0].role == role], ADAPTER_OF)
    told = [model.step(trajectories, lr_scale=1.0) for _ in range(2)]
    # c = 0 at first: the loss is the share of successes.
    won = [one.outcome for one in trajectories]
    assert told[0].told[role]["loss"] == pytest.approx(sum(won) / len(won))
    assert told[0].told[role]["loss_after"] < 0.5 * told[0].told[role]["loss"]
    assert told[1].told[role]["loss_after"] < 0.02
    for one, shares in zip(trajectories, told[1].scores, strict=True):
        assert math.fsum(shares) == pytest.approx(one.outcome, abs=0.25)
    assert len({round(share, 4) for share in told[1].scores[0]}) > 1


def test_a_contribution_is_read_at_the_last_token_of_its_turn(base: BaseModel) -> None:
    # One prompt, two answers of one token: before that token nothing can tell them apart.
    model = ProgressModel(learner_of(base, spread=0.05), PROGRESS, 0)
    episodes = [said("planner", "a", [(8,)], won=True), said("planner", "b", [(13,)], won=False)]
    first, second = model.step(trajectories_of(episodes, ADAPTER_OF), lr_scale=1.0).scores
    assert first[0] > second[0]


def test_the_slope_of_the_estimator_is_that_of_the_squared_sum(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # d/db (sum of c - R)^2 over T turns, c = 0 and R = 1: 2 T (0 - 1), of a mean over T: -2.
    algorithm = RewardModelOptions(kind="progress", epochs=1)
    learner = learner_of(base, spread=0.05)
    monkeypatch.setattr(learner, "options", learner.options.model_copy(update={"clip_norm": 1e9}))
    model = ProgressModel(learner, algorithm, 0)
    model.step(trajectories_of([said("planner", "a", [(8,), (9,), (10,)], won=True)], ADAPTER_OF), lr_scale=0.0)
    bias = model.estimator.heads["planner"][1].grad
    assert bias is not None
    assert float(bias) == pytest.approx(-2.0)


def test_golden_17_from_contributions_to_advantages(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    # Turn by turn, lambda = 1 and V = 0, an advantage is the return to go.
    words = ("algorithm.critic.level=turn", "algorithm.critic.lam=1", "algorithm.critic.whiten=false")
    update = rewarded(base, options_of("spa_rl", *words))
    model = update.model
    assert isinstance(model, ProgressModel)
    assert isinstance(update.update, Ppo)
    shares, asked = iter([0.1, 0.3, 0.5] * 9), list[list[float]]()
    monkeypatch.setattr(model.estimator, "values", lambda rows: {id(row.turn): [next(shares)] for row in rows})
    monkeypatch.setattr(
        model.estimator, "step", lambda rows, wanted, *_, **__: asked.append([*(one[0] for one in wanted.values())])
    )
    one = said("planner", "a", [(8,), (9,), (10,)], won=True, grounded=[True, False, True])
    found = update.improve([one], ADAPTER_OF, step=1, lr_scale=0.0)
    assert list(found.advantages) == near(GOLDEN["17"]["return_to_go_gamma1"])
    assert found.metrics["reward_model"]["planner"]["loss"] == near(GOLDEN["17"]["estimator_mse_for_R1"])
    assert asked[0] == near([0.2, 0.4, 0.6])
    assert [row.turn.paid["own.model"] for row in found.rows] == near(GOLDEN["17"]["fused_reward"])
    assert {name for row in found.rows for name in row.turn.rewards} == {"own.model"}


@pytest.mark.parametrize(("pooling", "loss"), [("sum", "dpo_loss_sum"), ("mean", "dpo_loss_step_mean")])
def test_golden_18_from_log_ratios_to_advantages(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, pooling: str, loss: str
) -> None:
    plain = ("algorithm.reward.source=terms", "algorithm.advantage.step.scale=none")
    update = rewarded(base, options_of("oprl", f"algorithm.reward.model.pooling={pooling}", *plain))
    model = update.model
    assert isinstance(model, ImplicitModel)
    ratios = {"a/0": (1.5, 0.5), "a/1": (1.0,), "b/0": (-1.0,), "b/1": (0.1, 0.3)}

    def now(rows: Any, is_reference: bool = False) -> Any:
        return {id(row.turn): ratios[row.turn.id.removeprefix("planner/")] for row in rows}

    monkeypatch.setattr(model.phi, "logprobs", now)
    monkeypatch.setattr(
        model.policy, "logprobs", lambda rows: {turn: [0.0] * len(own) for turn, own in now(rows).items()}
    )
    episodes = [
        said("planner", "a", [(8, 9), (10,)], won=True),
        said("planner", "b", [(8,), (10, 9)], won=False),
    ]
    found = update.improve(episodes, ADAPTER_OF, step=1, lr_scale=0.0)
    assert found.metrics["reward_model"]["planner"]["loss"] == near(GOLDEN["18"][loss])
    paid = [row.turn.paid["model"] for row in found.rows]
    assert [paid[:2], paid[2:]] == [near(GOLDEN["18"]["step_reward"][name]) for name in ("ok", "bad")]
    assert list(found.advantages) == near(GOLDEN["18"]["total_adv"])
    # The baseline of all steps, not the published code's, which only counts first rows.
    outcome = GOLDEN["18"]["outcome_rloo"]
    steps = [value - outcome[n // 2] for n, value in enumerate(found.advantages)]
    assert steps == near(GOLDEN["18"]["step_rloo_all_steps"])
    assert steps != near(GOLDEN["18"]["step_rloo_first_row_baseline"])


def test_the_step_term_of_oprl_weighs_as_much_as_the_outcome(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small a log-ratio is, in units of its spread it is not small beside a success or a failure."""
    update = rewarded(base, options_of("oprl"))
    model = update.model
    assert isinstance(model, ImplicitModel)
    small = {"a/0": 0.002, "a/1": 0.001, "b/0": -0.001, "b/1": 0.0004}
    monkeypatch.setattr(model, "step", lambda trajectories, lr_scale: StepScores(
        scores=[[small[row.turn.id.removeprefix("planner/")] for row in one.rows] for one in trajectories], told={}
    ))  # fmt: skip
    won = [said("planner", name, [(8,), (9,)], won=name == "a") for name in "ab"]
    episodes = [
        msgspec.structs.replace(
            one,
            turns=tuple(
                msgspec.structs.replace(turn, rewards={**turn.rewards, "outcome": float(one.success)})
                for turn in one.turns
            ),
        )
        for one in won
    ]
    found = update.improve(episodes, ADAPTER_OF, step=1, lr_scale=0.0)
    # RLOO of outcomes 1 and 0: +1 and -1. Steps: leave one out over their spread, whatever their unit.
    steps = [value - (1.0, 1.0, -1.0, -1.0)[n] for n, value in enumerate(found.advantages)]
    values = list(small.values())
    wanted = [(v - fmean(values)) * 4 / 3 / (stdev(values) + 1e-6) for v in values]
    assert steps == pytest.approx(wanted, abs=1e-6)
    assert max(map(abs, steps)) > 1


def test_golden_34_bounds_what_a_model_pays() -> None:
    scores, golden = [0.2, 0.6, 0.7, 0.9], GOLDEN["34"]
    for bound in ("clip", "delta", "both"):
        eta = {} if bound == "delta" else {"eta": 0.5}
        options = RewardModelOptions.model_validate({"kind": "progress", "bound": bound} | eta)
        assert payments(scores, [True] * 4, options) == near(golden[bound])
    delta = RewardModelOptions(kind="progress", bound="delta")
    found = payments(scores, [True] * 4, delta)
    assert [math.fsum(found[n:]) for n in range(4)] == near(golden["delta_return_to_go"])


@given(scores=st.lists(st.floats(-5, 5), min_size=1, max_size=8), more=st.integers(1, 20))
def test_repeating_a_turn_does_not_pay_where_rewards_are_bounded(scores: list[float], more: int) -> None:
    delta = RewardModelOptions(kind="progress", bound="delta")
    longer = [scores[0]] * more + scores
    # The sum is the first turn's score, however often it is repeated; clipped, no turn earns anything.
    if len(scores) > 1:
        whole = [math.fsum(payments(one, [True] * len(one), delta)) for one in (scores, longer)]
        assert whole[0] == pytest.approx(whole[1], abs=1e-9)
    clip = RewardModelOptions(kind="progress", bound="clip", eta=0.5)
    assert max(payments(longer, [True] * len(longer), clip)) <= 0


def test_the_implicit_model_learns_which_trajectories_succeed(base: BaseModel) -> None:
    model = ImplicitModel(learner_of(base, spread=0.05), IMPLICIT, 0)
    trajectories = trajectories_of(batch(), ADAPTER_OF)
    told = [model.step(trajectories, lr_scale=1.0) for _ in range(12)]
    for role in ADAPTER_OF:
        losses = [one.told[role]["loss"] for one in told]
        assert losses[-1] < 0.6 * losses[0]
        assert told[-1].told[role]["accuracy"] == 1.0
    assert told[0].told["planner"]["pairs"] == 2
    won = told[-1].scores[0]
    assert max(won) - min(won) > 0.05  # turns of one success are told apart


def test_the_slope_of_the_implicit_model_is_that_of_its_loss(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    for pooling in ("sum", "mean"):
        options = RewardModelOptions.model_validate({"kind": "implicit", "pooling": pooling, "beta": 0.5})
        model = ImplicitModel(learner_of(base, spread=0.05), options, 0)
        trajectories = trajectories_of(batch()[:3], ADAPTER_OF)
        scores = [[0.3, -0.2, 0.4], [0.1, 0.0, 0.2], [-0.5, 0.1]]
        slopes = {row.turn.id: -row.advantage * row.weight for row in model._slopes(trajectories, scores)}

        def loss(changed: Sequence[Sequence[float]], pooling: Any = pooling) -> float:
            values = [trajectory_score(one, pooling) for one in changed]
            found = preference_loss(values[:1], values[1:])
            assert found is not None
            return found

        for number, one in enumerate(trajectories):
            for place, row in enumerate(one.rows):
                moved = [list(own) for own in scores]
                moved[number][place] += 0.5 * 1e-6  # beta x a change of log phi of one token
                slope = (loss(moved) - loss(scores)) / 1e-6
                assert slopes[row.turn.id] == pytest.approx(slope, abs=1e-5)


def test_a_group_of_only_successes_teaches_the_implicit_model_nothing(base: BaseModel) -> None:
    model = ImplicitModel(learner_of(base, spread=0.05), IMPLICIT, 0)
    before = model.tensors()
    episodes = [said("planner", name, [(8,), (9,)], won=True) for name in "ab"]
    found = model.step(trajectories_of(episodes, ADAPTER_OF), lr_scale=1.0)
    assert found.told == {"planner": {"pairs": 0.0}}
    assert same(list(before.values()), list(model.tensors().values()))


@pytest.mark.parametrize("preset", ["spa_rl", "oprl", "clip_delta"])
def test_model_and_policy_are_trained_in_turn_and_neither_touches_the_other(
    base: BaseModel, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = rewarded(base, options_of(preset))
    learner: Learner = update.update.learner
    frozen = [one.clone() for one in base.model.parameters()]
    policies, models = [policy_of(learner)], [{name: one.clone() for name, one in update.model.tensors().items()}]
    improve = update.update.improve

    def noted(*args: Any, **more: Any) -> Any:
        policies.append(policy_of(learner))
        models.append({name: one.clone() for name, one in update.model.tensors().items()})
        return improve(*args, **more)

    monkeypatch.setattr(update.update, "improve", noted)
    update.improve(batch(), ADAPTER_OF, step=1, lr_scale=1.0)
    update.improve(batch(), ADAPTER_OF, step=2, lr_scale=1.0)
    policies.append(policy_of(learner))
    models.append({name: one.clone() for name, one in update.model.tensors().items()})
    # start, after the model of step 1, after the model of step 2, end
    assert same(policies[0], policies[1])
    assert not same(policies[1], policies[2])
    assert not same(policies[2], policies[3])
    assert any(not torch.equal(one, models[1][name]) for name, one in models[0].items())
    assert models[2].keys() == models[3].keys()
    assert same(list(models[2].values()), list(models[3].values()))
    assert same(frozen, list(base.model.parameters()))


@pytest.mark.parametrize("options", [PROGRESS, IMPLICIT], ids=["progress", "implicit"])
def test_the_next_step_after_restoring_is_bit_equal(base: BaseModel, options: RewardModelOptions) -> None:
    learner, trajectories = learner_of(base, spread=0.05), trajectories_of(batch(), ADAPTER_OF)
    model, other = (build_reward_model(learner, options, seed) for seed in (0, 1))
    model.step(trajectories, lr_scale=1.0)
    other.restore({name: one.clone() for name, one in model.tensors().items()})
    first, second = (one.step(trajectories, lr_scale=1.0) for one in (model, other))
    assert first == second
    after = other.tensors()
    assert all(torch.equal(one, after[name]) for name, one in model.tensors().items())


def test_trajectories_are_those_of_trained_agents_in_order() -> None:
    one = said("planner", "a", [(8,), (9,)], won=True)
    frozen = said("verifier", "a", [(8,)], won=True)
    mixed = msgspec.structs.replace(one, turns=(*reversed(one.turns), *frozen.turns))
    (found,) = trajectories_of([mixed], ADAPTER_OF)
    assert isinstance(found, Trajectory)
    assert [row.turn.id for row in found.rows] == ["planner/a/0", "planner/a/1"]
    assert (found.adapter, str(found.group), found.outcome) == ("planner", "task/planner", 1.0)


def test_a_model_adds_its_term_to_the_others_or_takes_their_place(base: BaseModel) -> None:
    added = rewarded(base, options_of("spa_rl", "algorithm.reward.model.joins=added"))
    alone = rewarded(base, options_of("spa_rl"))
    for update, others in ((added, {"team.won": 1.0}), (alone, {})):
        found = update.improve(batch()[:1], ADAPTER_OF, step=1, lr_scale=0.0)
        for row in found.rows:
            rest = dict(row.turn.rewards)
            whole = rest.pop("own.model")
            assert rest == others
            assert whole == pytest.approx(math.fsum(one.turn.paid["own.model"] for one in found.rows))
