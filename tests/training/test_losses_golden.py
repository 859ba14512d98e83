"""Token losses and their gradients against the numbers of `oracles.json` (section 28 of the formula sheet)."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from signals import gradient_of, losses_of, signals_of

from mas.algorithms.parts.losses.policy import importance_statistics, kl, kl_penalty
from mas.training.batch import token_weights

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())
BASELINES = ORACLES["28_baselines"]
AEPO = ORACLES["20_aepo"]
GSPO: dict[str, Any] = {"ratio": "turn", "clip_low": 3e-4, "clip_high": 4e-4, "dual_clip": None}
GSPO_SHIFTS = [0.02, -0.01, 0.05]


def near(values: Any) -> Any:
    """The oracles have six decimals."""
    return pytest.approx(values, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "advantage", "rho", "dual_clip", "gradient"),
    [
        ("adv+_r1.5_hi.28", 1.0, 1.5, 3.0, 0.0),
        ("adv-_r0.5_lo.2", -1.0, 0.5, 3.0, 0.0),
        ("adv-_r5", -1.0, 5.0, None, 5.0),  # -A rho
        ("adv-_r5_dual3", -1.0, 5.0, 3.0, 0.0),
    ],
)
def test_clip(name: str, advantage: float, rho: float, dual_clip: float | None, gradient: float) -> None:
    options = {"clip_high": 0.28, "dual_clip": dual_clip}
    signals = signals_of([math.log(rho)], advantage)
    assert losses_of(signals, **options).loss_J.item() == near(BASELINES["clip_cases"][name])
    assert gradient_of(signals, **options) == near([gradient])


def test_gspo() -> None:
    # The ratio exp(0.06 / 3) is above 1.0004. Bounded it has no gradient; a bad turn's is unbounded and has -A s.
    losses = losses_of(signals_of(GSPO_SHIFTS), **GSPO)
    assert losses.values["ratio"].tolist() == near([BASELINES["gspo_ratio"]] * 3)
    assert losses.loss_J.tolist() == near([BASELINES["gspo_loss_adv1"]] * 3)
    assert gradient_of(signals_of(GSPO_SHIFTS), **GSPO) == [0.0] * 3
    assert gradient_of(signals_of(GSPO_SHIFTS, -1.0), **GSPO) == near([BASELINES["gspo_ratio"]] * 3)


def test_the_gradient_of_gspo_goes_through_every_token_by_its_own_weight() -> None:
    # log s_j = sg(mean d) + log pi_j - sg(log pi_j): token j has the gradient -A s x its weight, whatever the others'.
    # With equal weights that is the gradient of 3 x -A exp(mean d) by plain autograd.
    unbounded = GSPO | {"clip_low": None, "clip_high": None}
    signals = signals_of(GSPO_SHIFTS, 2.0)
    assert gradient_of(signals, [1.0, 0.5, 0.0], **unbounded) == near([-2 * math.exp(0.02), -math.exp(0.02), 0.0])
    plain = 3 * -2 * (signals.logprobs_J - signals.start_J).mean().exp()
    (wanted_J,) = torch.autograd.grad(plain, signals.logprobs_J)
    assert gradient_of(signals, **unbounded) == near(wanted_J.tolist())


@pytest.mark.parametrize(
    ("name", "low", "high", "gradient"),
    [
        ("verl_lo.2_hi.28", 0.2, 0.28, -2.56),  # weight 1.28
        ("cap5_only", None, 4.0, -3.0),  # weight 1.5: a cap of 5 is 1 + 4
    ],
)
def test_cispo(name: str, low: float | None, high: float, gradient: float) -> None:
    options = {"surrogate": "cispo", "clip_low": low, "clip_high": high}
    signals = signals_of([math.log(1.5)], 2.0, logprobs=-0.5)
    assert losses_of(signals, **options).loss_J.item() == near(BASELINES["cispo"][name])
    assert gradient_of(signals, **options) == near([gradient])


@pytest.mark.parametrize(("low", "weight"), [(0.2, 0.8), (None, 0.5)])
def test_cispo_bounds_from_below_only_where_asked(low: float | None, weight: float) -> None:
    # rho 0.5, A 2: -w A.
    signals = signals_of([math.log(0.5)], 2.0)
    assert gradient_of(signals, surrogate="cispo", clip_low=low) == near([-2 * weight])


@pytest.mark.parametrize("rho", [1.0, 1.5])
def test_sapo(rho: float) -> None:
    # Slope of the gate: 4 sigmoid' = 4 g (1 - g), g = sigmoid(rho - 1); times d rho / d log pi = rho.
    signals = signals_of([math.log(rho)])
    value = BASELINES["sapo_gate_tau1"][f"r{rho:g}"]
    assert losses_of(signals, surrogate="sapo").loss_J.item() == near(-value)
    assert gradient_of(signals, surrogate="sapo") == near([-value * (1 - value / 4) * rho])


def test_sapo_has_a_temperature_per_sign() -> None:
    # -A (4 / tau) sigmoid(tau x 0.5): A = 1 with tau 2, A = -1 with tau 4.
    loss_J = losses_of(signals_of([math.log(1.5)] * 2, [1.0, -1.0]), surrogate="sapo", tau_pos=2, tau_neg=4).loss_J
    assert loss_J.tolist() == near([-2 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))])


def test_gmpo() -> None:
    # d 0.5 is bounded to 0.4: exp((0.4 - 0.1) / 2). Both tokens have the row's loss, and the first no gradient; the
    # second's is -A x for the sum of the two.
    options = {"surrogate": "gmpo", "clip_low": 0.4, "clip_high": 0.4}
    wanted = BASELINES["gmpo_ratio_adv_pos_eps04"]
    losses = losses_of(signals_of([0.5, -0.1]), **options)
    assert losses.loss_J.tolist() == near([-wanted] * 2)
    assert losses.values["clip_fraction"].tolist() == [1, 0]
    assert gradient_of(signals_of([0.5, -0.1]), **options) == near([0.0, -wanted])


def test_gmpo_bounds_a_bad_turn_from_below() -> None:
    # A = -1: d = 0.5 stays, -0.9 is bounded to -0.6: exp(-0.05).
    losses = losses_of(signals_of([0.5, -0.9], -1.0), surrogate="gmpo", clip_low=0.6, clip_high=0.3)
    assert losses.loss_J.tolist() == near([math.exp(-0.05)] * 2)
    assert losses.values["clip_fraction"].tolist() == [0, 1]


def test_gmpo_has_bounds_of_different_width_and_means_over_turns_not_trajectories() -> None:
    # A = 1: d = 0.5 of the one turn stays, 0.9 of the other is bounded to 0.6.
    signals = signals_of([0.5, 0.9], rows=[0, 1], trajectories=[0, 0])
    losses = losses_of(signals, surrogate="gmpo", clip_low=0.3, clip_high=0.6)
    assert losses.loss_J.tolist() == near([-math.exp(0.5), -math.exp(0.6)])
    assert losses.values["clip_fraction"].tolist() == [0, 1]


def test_aepo_keeps_the_gradient_of_a_clipped_good_token() -> None:
    # rho 1.5, A 1, high 0.2: the objective is 1.2 for both, its gradient 1.2, where plain clipping has 0.
    signals = signals_of([math.log(1.5)])
    for surrogate, gradient in (("keep_gradient", AEPO["d_objective_d_logp"]), ("clip", AEPO["plain_ppo_gradient"])):
        assert losses_of(signals, surrogate=surrogate).loss_J.item() == near(-AEPO["clipped_objective_value"])
        assert gradient_of(signals, surrogate=surrogate) == near([-gradient])


@pytest.mark.parametrize(
    ("advantage", "rho", "gradient"),
    [(1.0, 1.1, -1.1), (-1.0, 1.5, 1.5), (-1.0, 0.5, 0.0), (1.0, 0.5, -0.5), (-1.0, 5.0, 0.0)],
)
def test_aepo_is_the_clip_everywhere_else(advantage: float, rho: float, gradient: float) -> None:
    # The last: beyond the dual clip of 3.
    signals = signals_of([math.log(rho)], advantage)
    for surrogate in ("keep_gradient", "clip"):
        assert gradient_of(signals, surrogate=surrogate) == near([gradient])
    kept, clipped = (losses_of(signals, surrogate=name).loss_J.item() for name in ("keep_gradient", "clip"))
    assert kept == near(clipped)


@pytest.mark.parametrize(("estimator", "gradient"), [("k1", 1.0), ("k2", 0.2), ("k3", 1 - math.exp(-0.2))])
def test_kl_in_the_loss(estimator: str, gradient: float) -> None:
    # x = 0.2; k3' = 1 - exp(-x). Advantage 0 leaves the KL alone; a coefficient of 0.5 halves it.
    signals = signals_of([0.0], 0.0, logprobs=-1.0, reference=[-1.2])
    losses = losses_of(signals, kl=0.5, kl_estimator=estimator)
    wanted = BASELINES["kl_logp_m1_ref_m12"][estimator]
    assert losses.values["kl"].item() == near(wanted)
    assert losses.loss_J.item() == near(wanted / 2)
    assert gradient_of(signals, kl=0.5, kl_estimator=estimator) == near([gradient / 2])


def test_k3_plus_has_the_value_of_k3_and_the_gradient_of_k2() -> None:
    signals = signals_of([0.0], 0.0, logprobs=-1.0, reference=[-1.2])
    assert losses_of(signals, kl=1.0, kl_estimator="k3_plus").loss_J.item() == near(
        BASELINES["kl_logp_m1_ref_m12"]["k3"]
    )
    assert gradient_of(signals, kl=1.0, kl_estimator="k3_plus") == near([0.2])


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"), [("k1", -200, 1), ("k2", 20000, -200), ("k3", 10, 0), ("k3_plus", 10, -200)]
)
def test_a_policy_far_from_the_reference_has_a_finite_kl(estimator: str, value: float, gradient: float) -> None:
    # exp(200) would be infinite in float32, and its gradient not a number.
    x = torch.tensor([-200.0], requires_grad=True)
    found = kl(x, torch.zeros(1), estimator)
    assert found.item() == value
    found.backward()
    assert x.grad is not None
    assert x.grad.item() == gradient


def test_kl_in_the_reward_is_the_sum_of_k1() -> None:
    # 0.1 x ((-1 + 1.2) + (-2 + 2.5)) = 0.07; of one token the oracle's k1.
    assert kl_penalty([-1.0], [-1.2], 1.0) == near(BASELINES["kl_logp_m1_ref_m12"]["k1"])
    assert kl_penalty([-1.0, -2.0], [-1.2, -2.5], 0.1) == pytest.approx(0.07)
    assert kl_penalty([-1.2], [-1.0], 1.0) == pytest.approx(-0.2)


@pytest.mark.parametrize(
    ("aggregation", "name"),
    [
        ("token_mean", "token_mean"),
        ("seq_mean_token_mean", "seq_mean_token_mean"),
        ("seq_mean_token_sum", "seq_mean_token_sum"),
        ("seq_mean_token_sum_norm", "seq_mean_token_sum_norm_len8"),
    ],
)
def test_aggregation_of_token_losses(aggregation: Any, name: str) -> None:
    # On policy the loss is -A: rows of 2 and 4 tokens with losses 1 and 2, padded to 8.
    signals = signals_of([0.0] * 6, [-1.0] * 2 + [-2.0] * 4, rows=[0, 0, 1, 1, 1, 1])
    of_row = token_weights([2, 4], aggregation, 8)
    weights_J = torch.tensor(of_row, dtype=torch.float64)[signals.row_J]
    assert (losses_of(signals).loss_J * weights_J).sum().item() == near(BASELINES["aggregation"][name])


def test_importance_weights_are_truncated_and_multiply_the_policy_loss_alone() -> None:
    # start / behaviour = 1.5 and 4, capped at 2. The loss of A = 1 on policy is -1; then 0.1 x entropy 0.7 less, and
    # 0.5 x k1 0.2 more.
    signals = signals_of([0.0, 0.0], behind=[math.log(1.5), math.log(4.0)], reference=[-1.2, -1.2])
    losses = losses_of(signals, entropy=0.1, kl=0.5, kl_estimator="k1")
    assert losses.values["importance"].tolist() == near([1.5, 4.0])
    assert losses.values["importance_clipped"].tolist() == [0, 1]
    assert losses.values["policy_loss"].tolist() == near([-1.5, -2.0])
    assert losses.values["behaviour_gap"].tolist() == near([math.log(1.5), math.log(4.0)])
    assert losses.loss_J.tolist() == near([-1.5 - 0.07 + 0.1, -2.0 - 0.07 + 0.1])


def test_on_policy_the_lowest_cap_truncates_nothing() -> None:
    losses = losses_of(signals_of([0.0, 0.0]), importance_cap=1.0)
    assert losses.values["importance_clipped"].tolist() == [0, 0]
    assert losses.loss_J.tolist() == [-1, -1]


def test_with_a_cap_the_ratio_is_to_the_start_of_the_step_and_without_one_to_the_samples() -> None:
    # pi / start = 1.1, start / behaviour = 3, so pi / behaviour = 3.3, which the clip bounds to 1.2.
    signals = signals_of([math.log(1.1)], behind=math.log(3.0))
    assert losses_of(signals).values["ratio"].item() == near(1.1)
    assert losses_of(signals).values["behaviour_gap"].item() == near(math.log(3))
    assert losses_of(signals).loss_J.item() == near(-1.1 * 2)
    without = losses_of(signals, importance_cap=None)
    assert without.values["ratio"].item() == near(3.3)
    assert without.loss_J.item() == near(-1.2)
    assert (without.values["importance"].item(), without.values["importance_clipped"].item()) == (near(3.0), 0)


def test_importance_statistics() -> None:
    # Weights 1, 1, 2, 4: (8^2) / (4 x 22) = 0.727273; two of four are above 1.5.
    found = importance_statistics(torch.tensor([1.0, 1.0, 2.0, 4.0]))
    assert (found.ess, found.largest) == (near(64 / 88), 4.0)
    assert importance_statistics(torch.full((5,), math.exp(20))).ess == near(1.0)


def test_entropy_is_subtracted() -> None:
    signals = signals_of([0.0, 0.0], 0.0)
    losses = losses_of(signals, entropy=0.1)
    assert losses.loss_J.tolist() == near([-0.07] * 2)
    (gradient_J,) = torch.autograd.grad(losses.loss_J.sum(), signals.entropy_J)
    assert gradient_J.tolist() == near([-0.1] * 2)
