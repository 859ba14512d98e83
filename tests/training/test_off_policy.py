"""Masks over importance weights: which tokens, what of their loss and gradient, and what the learner says of them."""

import math
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn
from pydantic import ValidationError
from rows import ROLES, batch_of, copy_of, gradients, is_same, learner_of, loss_of, near, on_policy
from signals import gradient_of, losses_of, signals_of
from torch import Tensor

from mas.algorithms.parts.losses.off_policy import (
    OffPolicyOptions,
    off_policy_masks,
    outside_band,
    outside_sequence_band,
    vetoed,
)
from mas.algorithms.parts.losses.tokens import LossOptions, Signals, token_losses
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.custom_algorithm import method_of
from mas.config.load import load_config, overrides_of
from mas.config.options import LearnerOptions
from mas.core.errors import ConfigError
from mas.serving.model import BaseModel
from mas.training.batch import train_rows

SURROGATES: list[dict[str, Any]] = [
    {"surrogate": surrogate, "ratio": ratio}
    for surrogate in ("clip", "keep_gradient", "cispo", "sapo")
    for ratio in ("token", "turn", "sequence")
] + [{"surrogate": "reinforce"}]


def doubles(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_a_weight_on_a_bound_is_inside_and_the_next_number_is_not() -> None:
    low, high = math.log(0.5), math.log(2.0)
    log_weights = [math.nextafter(low, -1), low, 0.0, high, math.nextafter(high, 1)]
    assert outside_band(doubles(log_weights), low=0.5, high=2.0).tolist() == [True, False, False, False, True]
    rows_J = torch.arange(5)
    assert outside_sequence_band(doubles(log_weights), rows_J, low=0.5, high=2.0).tolist() == [True, *[False] * 3, True]
    assert vetoed(doubles(log_weights), rows_J, low=0.5, high=2.0).tolist() == [True, *[False] * 3, True]


def test_a_low_of_zero_is_no_bound_and_what_is_no_number_is_outside() -> None:
    log_weights_J = doubles([-1e6, -math.inf, 0.0, math.inf, math.nan])
    assert outside_band(log_weights_J, low=0.0, high=2.0).tolist() == [False, False, False, True, True]


def test_a_sequence_is_measured_by_the_geometric_mean_over_its_tokens() -> None:
    # Row 0 has log w 0.3 and -0.1: the geometric mean is exp(0.1) = 1.105; exp of the sum 1.22, the arithmetic mean of
    # w 1.127, and the greatest w 1.35 are outside. Row 1 is exp(0.2) = 1.22, row 2 exp(-0.2) = 0.82.
    masked_J = outside_sequence_band(doubles([0.3, 0.2, -0.1, -0.2]), torch.tensor([0, 1, 0, 2]), low=0.9, high=1.11)
    assert masked_J.tolist() == [False, True, False, True]


def test_one_outlier_on_either_side_vetoes_all_tokens_of_its_row_alone() -> None:
    # w: row 0 has 101 beside two of 1, row 1 has 99 and 2e-4, row 2 has 9e-5 and 1.
    log_weights_J = doubles([0.0, math.log(101), 0.0, math.log(99), math.log(2e-4), math.log(9e-5), 0.0])
    masked_J = vetoed(log_weights_J, torch.tensor([0, 0, 0, 1, 1, 2, 2]), low=1e-4, high=100.0)
    assert masked_J.tolist() == [True, True, True, False, False, True, True]


def test_the_clamp_of_log_ratios_hides_no_outlier() -> None:
    # exp(20) = 4.9e8 and exp(-20) = 2.1e-9 are inside of [1e-9, 1e9]; exp(21) = 1.3e9 and exp(-21) = 7.6e-10 are not.
    options = OffPolicyOptions(veto=(1e-9, 1e9), token_band=(1e-8, 5e8))
    start_J, rows_J = doubles([-1.0] * 4), torch.arange(4)
    masks = off_policy_masks(start_J, start_J - doubles([20.0, 21.0, -18.0, -21.0]), rows_J, options)
    assert masks["veto_masked"].tolist() == [False, True, False, True]
    assert masks["token_band_masked"].tolist() == [False, True, False, True]
    # Mean (40 - 10) / 2 = 15, exp(15) = 3.3e6; of clamped numbers (20 - 10) / 2 = 5, exp(5) = 148.
    options = OffPolicyOptions(sequence_band=(0.1, 1000.0))
    masks = off_policy_masks(start_J[:2], start_J[:2] - doubles([40.0, -10.0]), torch.zeros(2).long(), options)
    assert masks["sequence_band_masked"].tolist() == [True, True]


def test_each_mask_is_reported_and_only_those_that_are_asked_for() -> None:
    # log w 0.5 (w 1.65), 0.1 | -0.1, 0.1 | 5 (w 148), -4.9 (mean 0.05).
    behind, rows = [0.5, 0.1, -0.1, 0.1, 5.0, -4.9], [0, 0, 1, 1, 2, 2]
    bands = {"token_band": (0.5, 1.5), "sequence_band": (0.9, 1.1), "veto": (1e-4, 100.0)}
    wanted = {
        "token_band_masked": [1, 0, 0, 0, 1, 1],  # exp(-4.9) = 0.007
        "sequence_band_masked": [1, 1, 0, 0, 0, 0],  # exp(0.3) = 1.35; 1; exp(0.05) = 1.05
        "veto_masked": [0, 0, 0, 0, 1, 1],
        "off_policy_masked": [1, 1, 0, 0, 1, 1],
    }
    signals = signals_of([0.0] * 6, rows=rows, behind=behind)
    values = losses_of(signals, off_policy=bands).values
    assert {name: values[name].tolist() for name in wanted} == wanted
    for name, band in bands.items():
        values = losses_of(signals, off_policy={name: band}).values
        assert {key for key in values if key.endswith("_masked")} == {f"{name}_masked", "off_policy_masked"}
        assert values["off_policy_masked"].tolist() == wanted[f"{name}_masked"]
    assert not any(key.endswith("_masked") for key in losses_of(signals).values)


@pytest.mark.parametrize("ratio", ["token", "turn", "sequence"])
def test_bands_of_sequences_are_of_turns_and_with_ratio_sequence_of_trajectories(ratio: str) -> None:
    # Turns of one trajectory with log w 0.2 and -0.2: exp(0.2) = 1.22, exp(-0.2) = 0.82, and 1 over both.
    signals = signals_of([0.0] * 4, rows=[0, 0, 1, 1], trajectories=[0] * 4, behind=[0.2, 0.2, -0.2, -0.2])
    values = losses_of(signals, ratio=ratio, off_policy={"sequence_band": (0.9, 1.1)}).values
    assert values["sequence_band_masked"].tolist() == [0 if ratio == "sequence" else 1] * 4
    signals = signals_of([0.0] * 4, rows=[0, 0, 1, 1], trajectories=[0] * 4, behind=[5.0, 0.0, 0.0, 0.0])
    values = losses_of(signals, ratio=ratio, off_policy={"veto": (1e-4, 100.0)}).values
    assert values["veto_masked"].tolist() == [1, 1] + [1 if ratio == "sequence" else 0] * 2


def test_a_masked_token_has_no_policy_loss_and_keeps_its_entropy_and_kl() -> None:
    # w = 1.5, 3 and 0.4, band [0.5, 2.5], cap 2: of A = 1 on policy the first has -1.5, the others 0. All have
    # - 0.1 x entropy 0.7 + 0.5 x k1 0.2.
    signals = signals_of([0.0] * 3, behind=[math.log(w) for w in (1.5, 3.0, 0.4)], reference=[-1.2] * 3)
    options = {"off_policy": {"token_band": (0.5, 2.5)}, "entropy": 0.1, "kl": 0.5, "kl_estimator": "k1"}
    losses = losses_of(signals, **options)
    assert losses.values["policy_loss"].tolist() == pytest.approx([-1.5, 0, 0])
    assert losses.loss_J.tolist() == pytest.approx([-1.5 - 0.07 + 0.1, 0.03, 0.03])
    assert losses.values["importance"].tolist() == pytest.approx([1.5, 3.0, 0.4])
    gradient_J = torch.autograd.grad(losses.loss_J.sum(), (signals.logprobs_J, signals.entropy_J))
    assert gradient_J[0].tolist() == pytest.approx([-1.5 + 0.5, 0.5, 0.5])
    assert gradient_J[1].tolist() == pytest.approx([-0.1] * 3)


def test_icepop_weighs_tokens_within_the_band_by_their_whole_weight() -> None:
    # M(k) = k in [0.5, 5], else 0; A = 2.
    signals = signals_of([0.0] * 4, 2.0, behind=[math.log(w) for w in (0.49, 0.51, 4.9, 5.1)])
    options = {"off_policy": {"token_band": (0.5, 5.0)}, "importance_cap": 5.0}
    assert gradient_of(signals, **options) == pytest.approx([0, -1.02, -9.8, 0])


def test_masks_are_of_the_policy_at_the_start_of_the_step() -> None:
    # pi / start = 3 and start / behaviour = 1, or 1/3 and 3: only the second is outside, though pi / behaviour is 1.
    signals = signals_of([math.log(3), -math.log(3)], behind=[0.0, math.log(3)], rows=[0, 1])
    for cap in (2.0, None):
        options = {"off_policy": {"token_band": (0.5, 2.0)}, "importance_cap": cap}
        assert losses_of(signals, **options).values["token_band_masked"].tolist() == [0, 1]


@pytest.mark.parametrize("options", SURROGATES, ids=lambda options: "-".join(options.values()))
@pytest.mark.parametrize("cap", [2.0, None])
def test_masked_tokens_have_no_gradient_and_the_others_the_same_as_before(
    options: dict[str, Any], cap: float | None
) -> None:
    signals = signals_of(
        [0.1, -0.15, 0.05, 0.02, 0.1, -0.1],
        [1.5, 1.5, 1.5, -0.5, -0.5, -0.5],
        rows=[0, 0, 0, 1, 1, 2],
        trajectories=[0, 0, 0, 1, 1, 1],
        behind=[0.1, 1.2, -0.9, 0.0, 0.1, -0.2],
    )
    asked = options | {"importance_cap": cap}
    before, plain = gradient_of(signals, **asked), losses_of(signals, **asked)
    masked = asked | {"off_policy": {"token_band": (0.5, 2.0)}}
    kept = [1, 0, 0, 1, 1, 1]
    assert any(before[index] for index in (1, 2))
    assert gradient_of(signals, **masked) == [value if keep else 0 for value, keep in zip(before, kept, strict=True)]
    losses = losses_of(signals, **masked)
    assert losses.loss_J.tolist() == [
        value if keep else 0 for value, keep in zip(plain.loss_J.tolist(), kept, strict=True)
    ]
    assert losses.values["ratio"].tolist() == plain.values["ratio"].tolist()


def test_a_masked_turn_of_gmpo_has_no_gradient_and_the_other_the_same_as_before() -> None:
    signals = signals_of([0.1, -0.1, 0.2, 0.1], rows=[0, 0, 1, 1], behind=[0.0, 0.1, 5.0, 0.0])
    before = gradient_of(signals, surrogate="gmpo")
    masked = gradient_of(signals, surrogate="gmpo", off_policy={"veto": (1e-4, 100.0)})
    assert masked == [*before[:2], 0, 0]


def test_clipping_takes_nothing_from_a_masked_token() -> None:
    # rho = 1.5 is clipped for A = 1: what clipping takes is -rho x weight, with w = 1 and 3.
    signals = signals_of([math.log(1.5)] * 2, behind=[0.0, math.log(3)])
    losses = losses_of(signals, bias_correction=True, off_policy={"token_band": (0.5, 2.0)})
    assert losses.taken_J is not None
    assert losses.taken_J.tolist() == pytest.approx([-1.5, 0])
    (gradient_J,) = torch.autograd.grad(losses.taken_J.sum(), signals.logprobs_J)
    assert gradient_J.tolist() == pytest.approx([-1.5, 0])


def _overflowing(signals: Signals) -> Tensor:
    return -signals.advantage_J * (signals.logprobs_J - signals.behaviour_J).exp()


def _of_all(signals: Signals) -> Tensor:
    return -signals.advantage_J * signals.logprobs_J.sum()


@pytest.mark.parametrize("cap", [2.0, None])
def test_masks_work_beside_a_loss_function_of_ones_own(cap: float | None) -> None:
    options = LossOptions(entropy=0.0, importance_cap=cap, off_policy=OffPolicyOptions(token_band=(0.5, 2.0)))
    signals = signals_of([0.0] * 3, 2.0, behind=[0.0, math.log(1.5), 800.0])  # exp(800) is infinite
    weights = [1.0, 1.5 if cap else 1.0]
    losses = token_losses(signals, options, _overflowing)
    assert losses.loss_J.tolist() == pytest.approx([-2 * weights[0], -2 * 1.5 * weights[1], 0])
    (gradient_J,) = torch.autograd.grad(losses.loss_J.sum(), signals.logprobs_J)
    assert gradient_J.tolist() == pytest.approx([-2 * weights[0], -2 * 1.5 * weights[1], 0])
    # Where the loss of a token reads all of them, the masked one gets no gradient of the others' either.
    losses = token_losses(signals, options, _of_all)
    (gradient_J,) = torch.autograd.grad(losses.loss_J.sum(), signals.logprobs_J)
    assert gradient_J.tolist() == pytest.approx([-2 * sum(weights), -2 * sum(weights), 0])


@pytest.mark.parametrize("seed", range(20))
def test_losses_and_gradients_equal_plain_arithmetic_over_lists(seed: int) -> None:
    drawn = random.Random(seed)
    rows = [row for row in range(6) for _ in range(drawn.randint(1, 5))]
    drawn.shuffle(rows)
    trajectories = [row // 2 for row in rows]
    log_w = [drawn.gauss(0, 1.5 if drawn.random() < 0.2 else 0.2) for _ in rows]
    advantages = [drawn.gauss(0, 1) for _ in rows]
    ratio, cap = drawn.choice(("token", "turn", "sequence")), drawn.choice((1.0, 2.0, 5.0))
    bands = {"token_band": (0.5, 2.0), "sequence_band": (0.9, 1.15), "veto": (0.2, 4.0)}
    asked = {name: bands[name] for name in drawn.sample(sorted(bands), drawn.randint(1, 3))}
    units = trajectories if ratio == "sequence" else rows
    wanted = []
    for unit, value, advantage in zip(units, log_w, advantages, strict=True):
        weights = [math.exp(other) for other, its in zip(log_w, units, strict=True) if its == unit]
        measures = {
            "token_band": [math.exp(value)],
            "sequence_band": [math.prod(weights) ** (1 / len(weights))],
            "veto": weights,
        }
        is_masked = any(
            measure < low or measure > high for name, (low, high) in asked.items() for measure in measures[name]
        )
        wanted.append(0.0 if is_masked else -advantage * min(math.exp(value), cap))
    signals = signals_of([0.0] * len(rows), advantages, rows=rows, trajectories=trajectories, behind=log_w)
    options = {"ratio": ratio, "importance_cap": cap, "off_policy": asked}
    assert losses_of(signals, **options).loss_J.tolist() == pytest.approx(wanted)
    assert gradient_of(signals, **options) == pytest.approx(wanted)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.mark.parametrize(("aggregation", "loss"), [("seq_mean_token_mean", -(3 / 4 + 1) / 2), ("token_mean", -5 / 6)])
def test_masked_tokens_count_in_the_denominator(base: BaseModel, aggregation: str, loss: float) -> None:
    # Rows of 4 and 2 tokens with A = 1, one of the 4 masked. Without it in the denominator both were -1.
    learner = learner_of(base, off_policy=OffPolicyOptions(token_band=(0.5, 2.0)))
    turns = [make_turn(completion_ids=ids) for ids in ((8, 9, 10, 11), (8, 9))]
    fresh = [row.turn for row in on_policy(learner, batch_of(turns, [1.0, 1.0]))]
    first, *others = fresh[0].logprobs
    fresh[0] = msgspec.structs.replace(fresh[0], logprobs=(first - 3, *others))
    assert loss_of(learner, batch_of(fresh, [1.0, 1.0], aggregation=aggregation)) == pytest.approx(loss, abs=1e-4)


def test_an_adapter_of_which_all_is_masked_gets_a_gradient_of_zero_and_the_others_theirs(base: BaseModel) -> None:
    learner = learner_of(base, LearnerOptions(weight_decay=0.0), off_policy=OffPolicyOptions(veto=(1e-4, 100.0)))
    turns = [make_turn(role=role, completion_ids=ids) for role in ROLES[:2] for ids in ((8, 9), (9, 10, 11))]
    rows = on_policy(learner, batch_of(turns, [1.0, -0.5] * 2))
    far = [
        msgspec.structs.replace(row.turn, logprobs=tuple(value - 5 for value in row.turn.logprobs))
        if row.adapter == "planner"
        else row.turn
        for row in rows
    ]
    alone = gradients(learner_of(base), [row for row in rows if row.adapter == "executor"])
    batch = batch_of(far, [row.advantage for row in rows])
    loss_of(learner, batch)
    planner, executor, verifier = (
        [tensor.grad for tensor in learner.adapters[role].parameters()] for role in ("planner", "executor", "verifier")
    )
    assert all(gradient is not None and not gradient.any() for gradient in planner)
    assert near(torch.cat([tensor.flatten() for tensor in executor if tensor is not None]), alone, 1e-4)
    assert verifier == [None] * len(verifier)
    before = {role: copy_of(learner.adapters[role]) for role in ("planner", "executor")}
    metrics = learner.step(batch)
    assert is_same(learner.adapters["planner"], before["planner"])
    assert not is_same(learner.adapters["executor"], before["executor"])
    assert all(math.isfinite(value) for own in metrics.values() for value in own.values())
    assert metrics["planner"]["gradient_norm"] == metrics["planner"]["policy_loss"] == 0
    assert (metrics["planner"]["veto_masked"], metrics["executor"]["veto_masked"]) == (1, 0)


def test_roles_that_share_an_adapter_are_told_apart_in_what_masks_leave_out(base: BaseModel) -> None:
    # exp(0.5) = 1.65 is outside of the band, exp(2) = 7.4 is vetoed beside.
    learner = learner_of(base, off_policy=OffPolicyOptions(token_band=(0.5, 1.5), veto=(0.2, 5.0)))
    shifts = {"planner": 0.0, "executor": 0.5, "verifier": 2.0}
    spoken = on_policy(learner, batch_of([make_turn(completion_ids=(8, 9))], [1.0]))[0].turn
    turns = [
        msgspec.structs.replace(spoken, role=role, logprobs=tuple(value - shift for value in spoken.logprobs))
        for role, shift in shifts.items()
    ]
    adapters = dict.fromkeys(ROLES, "executor")
    rows = train_rows(turns, [1.0, -0.5, 0.5], adapters, aggregation="seq_mean_token_mean", max_length=8)
    metrics = learner.step(rows)["executor"]
    for role, (band, veto) in {"planner": (0, 0), "executor": (1, 0), "verifier": (1, 1)}.items():
        assert metrics[f"{role}.token_band_masked"] == metrics[f"{role}.off_policy_masked"] == band
        assert metrics[f"{role}.veto_masked"] == veto
        assert f"{role}.sequence_band_masked" not in metrics
    assert metrics["token_band_masked"] == metrics["off_policy_masked"] == pytest.approx(2 / 3)
    assert metrics["veto_masked"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("bands", "said"),
    [
        ({}, "there is no mask: give token_band, sequence_band, veto or several"),
        ({"veto": None}, "there is no mask"),
        ({"token_band": (2.0, 0.5)}, r"token_band=\[2\.0, 0\.5\] is no band of weights.*0 <= low <= 1 <= high"),
        ({"sequence_band": (1.0, 1.0)}, r"sequence_band=\[1\.0, 1\.0\] is no band"),
        ({"token_band": (1.01, 2.0)}, "token_band=.* is no band"),
        ({"token_band": (0.5, 0.99)}, "token_band=.* is no band"),
        ({"veto": (-0.1, 2.0)}, "veto=.* is no band"),
        ({"token_band": (0.2, 5.0), "veto": (0.2, 5.0)}, r"token_band=.* has no effect here: veto=\[0\.2, 5\.0\]"),
        ({"sequence_band": (0.1, 5.0), "veto": (0.2, 5.0)}, "sequence_band=.* has no effect here"),
    ],
)
def test_bands_that_cannot_be_are_refused(bands: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        OffPolicyOptions(**bands)
    words = [f"algorithm.loss.off_policy.{name}={list(band) if band else 'null'}" for name, band in bands.items()]
    with pytest.raises(ConfigError, match=f"algorithm.loss.off_policy: {said}"):
        load_config(words or ["algorithm.loss.off_policy={}"])


@pytest.mark.parametrize(("band", "place"), [("[0.5, inf]", "1=inf"), ("[nan, 2.0]", "0=nan")])
def test_a_band_to_no_finite_number_is_refused(band: str, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"algorithm\.loss\.off_policy\.veto\.{place} is not possible.*finite"):
        load_config([f"algorithm.loss.off_policy.veto={band}"])


@pytest.mark.parametrize(
    "bands",
    [
        {"token_band": (0.5, 5.0)},
        {"token_band": (0.0, 1.0)},
        {"sequence_band": (1.0, 1.01), "veto": (1e-4, 100.0)},
        {"token_band": (0.3, 6.0), "sequence_band": (0.3, 6.0), "veto": (0.2, 5.5)},
        {"token_band": (0.1, 5.0), "sequence_band": (0.1, 5.0), "veto": (0.2, 5.5)},
    ],
    ids=str,
)
def test_bands_load_again_from_overrides(bands: dict[str, tuple[float, float]]) -> None:
    config = load_config([f"algorithm.loss.off_policy.{name}={list(band)}" for name, band in bands.items()])
    assert config.algorithm.loss.off_policy == OffPolicyOptions(**bands)
    assert load_config(overrides_of(config)) == config


def test_gmpo_weighs_turns_so_that_single_tokens_cannot_be_left_out() -> None:
    with pytest.raises(
        ValidationError, match=r"off_policy\.token_band cannot leave out single tokens; write off_policy"
    ):
        LossOptions(surrogate="gmpo", off_policy=OffPolicyOptions(token_band=(0.5, 2.0)))
    LossOptions(surrogate="gmpo", off_policy=OffPolicyOptions(sequence_band=(0.5, 2.0), veto=(1e-4, 100.0)))


def test_an_algorithm_with_a_loss_of_its_own_may_have_masks(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    code.write_text(
        "from mas.algorithms import Algorithm, NoOptions, Recipe\n"
        "algorithm = Algorithm(recipe=Recipe(title='Mine', does='This.'), options=NoOptions, loss=print)\n"
    )
    masks = {"off_policy": {"token_band": [0.5, 2.0]}}
    method = method_of(AlgorithmOptions.model_validate({"name": "mine", "code": str(code), "loss": masks}))
    assert method is not None
    assert method.loss is not None
