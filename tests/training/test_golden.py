"""Published formulas against the numbers of `oracles.json` (its sections are those of the formula sheet)."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parts import make_turn

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, Known, turn_advantages
from mas.algorithms.parts.losses.policy import clipped_loss, kl, log_ratio
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.training.batch import token_weights
from mas.training.sampling.sampler import EpisodeRecorder
from mas.training.sampling.tree import TreeSampler, _TreePlay

ORACLES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "data" / "oracles.json").read_text())
AT_GRPO = ORACLES["01_at_grpo"]
BASELINES = ORACLES["28_baselines"]

# Section 1: K = 4 coders with team = own = share of tests passed; then 4 testers behind the winner (team 1 for all).
CODER = [{"team.tests": p, "own.tests": p} for p in (0.5, 1.0, 0.0, 0.5)]
TESTER = [{"team.tests": 1.0, "own.quality": q} for q in (0.2, 0.6, 1.0, 0.2)]
# Section 28: one prompt, four samples, of 2, 4, 4 and 2 tokens.
REWARDS = [1.0, 0.0, 0.0, 0.0]


def near(values: Any) -> Any:
    """The oracles have six decimals."""
    return pytest.approx(values, abs=1e-6)


def totals(terms: list[dict[str, float]]) -> list[float]:
    return [total_reward(named, RewardOptions()) for named in terms]


def test_at_grpo_rewards_are_team_plus_own() -> None:
    assert totals(CODER) == near(AT_GRPO["coder_reward"])
    assert totals(TESTER) == near(AT_GRPO["tester_reward"])


def test_alpha_and_weights_scale_their_terms() -> None:
    # 0.5 x (2 x 1.0) + 3 x 0.6 = 2.8.
    options = RewardOptions(alpha=0.5, weights={"tests": 2.0, "quality": 3.0})
    assert total_reward(TESTER[1], options) == pytest.approx(2.8)


def test_at_grpo_advantages_compare_inside_agent_and_turn() -> None:
    coder = [make_turn(group="e/0/coder", trajectory=f"c{k}", rewards=terms) for k, terms in enumerate(CODER)]
    tester = [make_turn(group="e/0/tester", trajectory=f"t{k}", rewards=terms) for k, terms in enumerate(TESTER)]
    mixed = [turn for pair in zip(coder, tester, strict=True) for turn in pair]
    advantages = turn_advantages(mixed, RewardOptions(), AdvantageOptions())
    assert advantages[0::2] == near(AT_GRPO["coder_adv"])
    assert advantages[1::2] == near(AT_GRPO["tester_adv"])


def test_what_a_turn_pays_is_taken_off_its_trajectorys_reward_before_it_is_compared() -> None:
    # R = 1, 1, 0; the first pays 0.5 in one turn, the second 0.25 in each of two: 0.5, 0.5, 0, mean 1/3, std 0.288675.
    names, rewards, paid = ("a", "b", "b", "c"), (1.0, 1.0, 1.0, 0.0), (0.5, 0.25, 0.25, 0.0)
    turns = [
        make_turn(group="g", trajectory=name, rewards={"team.won": won})
        for name, won in zip(names, rewards, strict=True)
    ]
    found = turn_advantages(turns, RewardOptions(), AdvantageOptions(), Known(penalties=paid))
    assert found == near([0.577348, 0.577348, 0.577348, -1.154697])


@pytest.mark.parametrize(("terms", "winner"), [(CODER, "coder_winner"), (TESTER, "tester_winner")])
def test_at_grpo_commits_the_best(terms: list[dict[str, float]], winner: str) -> None:
    sampler = TreeSampler(None, None, SamplerOptions(), RewardOptions())
    play = _TreePlay(sampler, EpisodeRecorder(id="e", task="t"), 0)
    assert play._winner(totals(terms), here=5) == AT_GRPO[winner]


def test_one_flat_group_would_give_other_advantages() -> None:
    flat = group_advantages(totals(CODER + TESTER), ["flat"] * 8)
    assert flat == near(AT_GRPO["flat_group_adv_for_contrast"])


def test_at_grpo_group_loss() -> None:
    # Ratios 1.1, 1.3, 0.7, 1.0, one token each.
    rho_NL = torch.tensor([[1.1], [1.3], [0.7], [1.0]])
    advantage_N1 = torch.tensor(group_advantages(totals(CODER), ["g"] * 4))[:, None]
    losses_NL = clipped_loss(rho_NL, advantage_N1, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    weights = token_weights([1] * 4, "seq_mean_token_mean", 1)
    loss = sum(weight * float(value) for weight, value in zip(weights, losses_NL, strict=True))
    assert loss == near(AT_GRPO["coder_group_loss_clip02"])


def test_identical_branches_teach_nothing() -> None:
    assert group_advantages([1.7] * 4, ["g"] * 4) == AT_GRPO["degenerate_identical_branches"]


@pytest.mark.parametrize(
    ("name", "baseline", "scale"),
    [("grpo", "mean", "std"), ("dr_grpo", "mean", "none"), ("rloo", "leave_one_out", "none")],
)
def test_baselines(name: str, baseline: Any, scale: Any) -> None:
    assert group_advantages(REWARDS, ["g"] * 4, baseline=baseline, scale=scale) == near(BASELINES[name])


def test_grpo_on_summed_terms() -> None:
    # Accuracy [1, 0, 1, 0] and format [1, 1, 0, 1]: the sums are 2, 1, 1, 1.
    pairs = zip([1.0, 0.0, 1.0, 0.0], [1.0, 1.0, 0.0, 1.0], strict=True)
    summed = totals([{"team.accuracy": accuracy, "own.format": form} for accuracy, form in pairs])
    assert group_advantages(summed, ["g"] * 4) == near(BASELINES["grpo_on_summed_reward"])


@pytest.mark.parametrize(
    ("name", "advantage", "rho", "dual_clip"),
    [
        ("adv+_r1.5_hi.28", 1.0, 1.5, 3.0),
        ("adv-_r0.5_lo.2", -1.0, 0.5, 3.0),
        ("adv-_r5", -1.0, 5.0, None),
        ("adv-_r5_dual3", -1.0, 5.0, 3.0),
    ],
)
def test_clip_cases(name: str, advantage: float, rho: float, dual_clip: float | None) -> None:
    loss = clipped_loss(
        torch.tensor([[rho]]), torch.tensor([[advantage]]), clip_low=0.2, clip_high=0.28, dual_clip=dual_clip
    )
    assert loss.item() == near(BASELINES["clip_cases"][name])


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_kl_estimators(estimator: str) -> None:
    value = kl(torch.tensor([[-1.0]]), torch.tensor([[-1.2]]), estimator)
    assert value.item() == near(BASELINES["kl_logp_m1_ref_m12"][estimator])


@pytest.mark.parametrize(
    ("aggregation", "name"),
    [
        ("token_mean", "token_mean"),
        ("seq_mean_token_mean", "seq_mean_token_mean"),
        ("seq_mean_token_sum", "seq_mean_token_sum"),
        ("seq_mean_token_sum_norm", "seq_mean_token_sum_norm_len8"),
    ],
)
def test_aggregation(aggregation: Any, name: str) -> None:
    # Token losses [1, 1] and [2, 2, 2, 2], padded to 8.
    weights = token_weights([2, 4], aggregation, 8)
    assert weights[0] * (1 + 1) + weights[1] * (2 * 4) == near(BASELINES["aggregation"][name])


def test_the_ratio_clamps_the_difference_first() -> None:
    # Section 0.2: rho = exp(d), d clamped to [-20, 20].
    rho = log_ratio(torch.tensor([[0.0, -90.0, 0.1]]), torch.tensor([[-90.0, 0.0, 0.0]])).exp()
    assert rho.tolist()[0] == pytest.approx([torch.tensor(20.0).exp().item(), 2.0611536e-9, 1.1051709])


@pytest.mark.parametrize(("single", "advantage"), [("zero", 0.0), ("raw", 0.7)])
def test_a_group_of_one(single: Any, advantage: float) -> None:
    # Section 0.3.
    assert group_advantages([0.7, 1.0, 0.0], ["alone", "g", "g"], single=single)[0] == advantage
