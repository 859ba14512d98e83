"""Partial, bounded, shaped and learned rewards: sections 8, 9, 11, 12, 17, 18, 26, 28, 33, 34, 36 of the sheet."""

import math
from itertools import accumulate
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.gae import token_rewards
from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.rewards.transforms import (
    Answer,
    clip_rewards,
    delta_rewards,
    entity_rewards,
    estimator_loss,
    fused_rewards,
    match_rate,
    overlong_penalty,
    preference_gradient,
    preference_loss,
    step_rewards,
    trajectory_score,
)
from mas.tools import ToolCall, tool_score

ENTITIES = ORACLES["33_e_grpo"]
BOUNDED = ORACLES["34_clip_delta"]
OPRL = ORACLES["18_oprl"]
FLOATS = st.floats(-4, 4)


def to_go(rewards: list[float]) -> list[float]:
    return list(accumulate(reversed(rewards)))[::-1]


def test_wrong_answers_earn_by_the_entities_they_found() -> None:
    names = ["Ada", "Byron", "Cole", "Dunn"]
    texts = ["Ada, Byron and Cole", "Ada or Byron", "Byron", "Cole Dunn"]
    rates = [match_rate(text, names) for text in texts]
    assert rates == ENTITIES["match_rate"]
    answers: list[Answer] = ["correct", "wrong", "wrong", "error"]
    rewards = entity_rewards(rates, answers, alpha=0.3)
    assert rewards == near(ENTITIES["reward"])
    assert group_advantages(rewards, ["g"] * 4) == near(ENTITIES["adv"])
    assert entity_rewards(rates, ["wrong"] * 4, alpha=1.0) == near(ENTITIES["normalised"])


@given(
    rows=st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["correct", "wrong", "error"])), max_size=9),
    alpha=st.floats(0, 1),
)
def test_no_wrong_answer_is_worth_more_than_a_correct_one(rows: list[tuple[float, Answer]], alpha: float) -> None:
    rewards = entity_rewards([rate for rate, _ in rows], [answer for _, answer in rows], alpha=alpha)
    for reward, (_, answer) in zip(rewards, rows, strict=True):
        assert {"correct": reward == 1, "wrong": 0 <= reward <= alpha, "error": reward == 0}[answer]


def test_where_nothing_was_found_wrong_answers_get_nothing() -> None:
    assert entity_rewards([0.0, 0.0], ["wrong", "correct"], alpha=0.3) == [0, 1]


def test_a_repeated_entity_counts_once() -> None:
    assert match_rate("Ada", ["Ada", "Ada", "Byron"]) == 0.5


@pytest.mark.parametrize("names", [[], ["Ada", ""]])
def test_no_entities_are_refused(names: list[str]) -> None:
    with pytest.raises(ValueError, match="cannot be matched"):
        match_rate("Ada", names)


def test_rates_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"rate 1\.2"):
        entity_rewards([1.2], ["wrong"], alpha=0.3)
    with pytest.raises(ValueError, match="alpha 2"):
        entity_rewards([1.0], ["wrong"], alpha=2)
    with pytest.raises(ValueError, match="1 rates but 2 answers"):
        entity_rewards([1.0], ["wrong", "wrong"], alpha=0.3)


def test_clip_and_delta_and_both() -> None:
    rewards = [0.2, 0.6, 0.7, 0.9]
    assert clip_rewards(rewards, 0.5) == near(BOUNDED["clip"])
    assert delta_rewards(rewards) == near(BOUNDED["delta"])
    assert to_go(delta_rewards(rewards)) == near(BOUNDED["delta_return_to_go"])
    assert delta_rewards(clip_rewards(rewards, 0.5)) == near(BOUNDED["both"])


@given(rewards=st.lists(FLOATS, min_size=1, max_size=12))
def test_what_follows_a_step_sums_to_its_own_reward_however_long_the_trajectory(rewards: list[float]) -> None:
    assert to_go(delta_rewards(rewards)) == pytest.approx([*rewards[:-1], 0.0], abs=1e-9)
    assert delta_rewards([]) == []


@given(rewards=st.lists(FLOATS, max_size=12), eta=FLOATS)
def test_clipped_rewards_never_pay(rewards: list[float], eta: float) -> None:
    assert all(value <= 0 for value in clip_rewards(rewards, eta))


@pytest.mark.parametrize("name", ORACLES["28_baselines"]["dapo_soft_overlong"])
def test_overlong_completions_pay_more_and_more(name: str) -> None:
    wanted = ORACLES["28_baselines"]["dapo_soft_overlong"][name]
    assert overlong_penalty(int(name.removeprefix("y")), most=100, cache=20) == near(wanted)


@given(length=st.integers(0, 300), most=st.integers(1, 200), share=st.floats(0, 1))
def test_an_overlong_penalty_never_falls_and_never_exceeds_one(length: int, most: int, share: float) -> None:
    cache = max(1, round(share * most))
    found = overlong_penalty(length, most=most, cache=cache)
    assert -1 <= overlong_penalty(length + 1, most=most, cache=cache) <= found <= 0


@pytest.mark.parametrize(("length", "cache"), [(-1, 5), (3, 0), (3, 11)])
def test_lengths_that_cannot_be_are_refused(length: int, cache: int) -> None:
    with pytest.raises(ValueError, match="length"):
        overlong_penalty(length, most=10, cache=cache)


def test_progress_and_grounding_make_one_reward() -> None:
    spa = ORACLES["17_spa_rl"]
    found = fused_rewards([0.1, 0.3, 0.5], [True, False, True])
    assert found == near(spa["fused_reward"])
    assert to_go(found) == near(spa["return_to_go_gamma1"])
    assert estimator_loss([0.1, 0.3, 0.5], 1.0) == near(spa["estimator_mse_for_R1"])
    # The last step counts as grounded whatever the world said.
    assert fused_rewards([0.1, 0.3, 0.5], [True, False, False]) == found


def test_progress_needs_a_flag_per_step_and_a_step() -> None:
    with pytest.raises(ValueError, match="2 contributions but 1 flags"):
        fused_rewards([0.1, 0.2], [True])
    with pytest.raises(ValueError, match="without steps"):
        estimator_loss([], 1.0)


# Two steps per trajectory; the tokens' log-ratios sum to 2 and 1, -1 and 0.4.
GOOD, BAD = [[1.5, 0.5], [1.0]], [[-1.0], [0.1, 0.3]]


def test_log_ratios_are_step_rewards() -> None:
    assert step_rewards(GOOD) == near(OPRL["step_reward"]["ok"])
    assert step_rewards(BAD) == near(OPRL["step_reward"]["bad"])


def test_success_is_to_score_above_failure() -> None:
    for pooling, name in (("sum", "dpo_loss_sum"), ("mean", "dpo_loss_step_mean")):
        scores = [trajectory_score(step_rewards(steps), pooling) for steps in (GOOD, BAD)]
        assert preference_loss(scores[:1], scores[1:]) == near(OPRL[name])


def test_step_and_outcome_advantages_of_implicit_rewards() -> None:
    steps = [*step_rewards(GOOD), *step_rewards(BAD)]
    outcome = group_advantages([1.0, 0.0], ["g"] * 2, baseline="leave_one_out", scale="none")
    of_step = group_advantages(steps, ["g"] * 4, baseline="leave_one_out", scale="none")
    assert outcome == near(OPRL["outcome_rloo"])
    assert of_step == near(OPRL["step_rloo_all_steps"])
    assert [outcome[n // 2] + step for n, step in enumerate(of_step)] == near(OPRL["total_adv"])


SCORES = st.lists(st.floats(-30, 30), max_size=4)


@given(good=SCORES, bad=SCORES)
def test_the_gradient_of_the_preference_loss_is_its_slope(good: list[float], bad: list[float]) -> None:
    up, down = preference_gradient(good, bad)
    assert math.fsum(up) + math.fsum(down) == pytest.approx(0, abs=1e-9)
    for number in range(len(good)):
        shifted = [[value + sign * 1e-5 * (n == number) for n, value in enumerate(good)] for sign in (1, -1)]
        above, below = (preference_loss(values, bad) for values in shifted)
        slope = 0.0 if above is None or below is None else (above - below) / 2e-5
        assert up[number] == pytest.approx(slope, abs=1e-5)
        assert up[number] <= 0


def test_a_group_without_both_kinds_has_no_pair() -> None:
    assert preference_loss([1.0], []) is None
    assert preference_gradient([1.0], []) == ([0.0], [])
    assert preference_gradient([], [1.0]) == ([], [0.0])
    assert preference_loss([-1e4], [1e4]) == pytest.approx(2e4)
    with pytest.raises(ValueError, match="without steps"):
        trajectory_score([])


def test_token_rewards_to_go_are_the_advantages_of_comas() -> None:
    comas = ORACLES["08_comas"]
    assert to_go(token_rewards(1.0, [0.01 * ratio for ratio in (0.1, 0.2, -0.1)])) == near(comas["token_adv"])


def test_rewards_of_actions_enter_beside_the_outcome() -> None:
    # HRPO, our reading: A = z(R) + 0.5 x the action's own reward.
    actions = [[0.2, -0.1], [0.0, 0.3], [0.1, 0.1], [-0.2, 0.0]]
    outcome = group_advantages([1.0, 0.0, 1.0, 0.0], ["g"] * 4)
    found = [[value + 0.5 * action for action in row] for value, row in zip(outcome, actions, strict=True)]
    assert found == [near(row) for row in ORACLES["11_hrpo_our_reading"]["adv"]]


def test_foresight_is_the_mean_success_of_who_carries_it_out() -> None:
    # Hi-Agent, our reading: what `sampler.continuations` averages over play-outs.
    rewards = [fmean(successes) for successes in ([1, 1], [1, 0], [0, 0], [1, 1])]
    assert rewards == ORACLES["12_hi_agent_our_reading"]["foresight_reward"]
    assert group_advantages(rewards, ["screen"] * 4) == near(ORACLES["12_hi_agent_our_reading"]["high_level_adv"])


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("rewriter_5_subquestions", {"query": -0.5}),
        ("selector_valid", {"selection": 0.0}),
        ("generator_35_words", {"length": -1.0}),
    ],
)
def test_a_shared_f1_with_own_penalties_needs_no_part_of_its_own(name: str, own: dict[str, float]) -> None:
    terms = {"team.f1": 0.6} | {f"own.{term}": value for term, value in own.items()}
    assert total_reward(terms, RewardOptions()) == near(ORACLES["26_mmoa_rag"][name])


def test_the_tool_reward_is_the_weighted_sum_of_its_parts() -> None:
    # ToolRL: format + 6 (name + parameters + values) / most - 3. Wanted: one call of two arguments, most = 4. Called:
    # the right tool, one parameter of the two right and right in value, one other: name 1, parameters 1/3, values 1.
    wanted, called = ToolCall("add", {"a": 1, "b": 2}), ToolCall("add", {"a": 1, "c": 2})
    score = tool_score([called], [wanted], readable=True)
    assert (score.name, score.parameters, score.values, score.most) == (1, pytest.approx(1 / 3), 1, 4)
    assert score.total == pytest.approx(1 + 6 * (1 + 1 / 3 + 1) / 4 - 3)


@pytest.mark.parametrize(("name", "action"), [("exact", 1.0), ("type_only", 0.5), ("parsed_wrong", 0.1)])
def test_a_step_reward_of_form_and_action_is_two_weighted_terms(name: str, action: float) -> None:
    # UI-S1: 0.1 x form + 0.9 x action.
    options = RewardOptions(weights={"format": 0.1, "action": 0.9})
    terms = {"own.format": 1.0, "own.action": action}
    assert total_reward(terms, options) == near(ORACLES["36_ui_s1"]["step_reward"][name])
