"""Rewards for improving on each other: sections 9, 24 and 25 of the formula sheet."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.rewards.interaction import proposer_reward, shared_sum
from mas.scenarios.red_team.cases import AttackExchange, RedTeamRewards

ATTACKS = {
    "harmful_seed_complied_harmful": (True, True, False, True),
    "harmful_seed_refused": (True, True, True, False),
    "benign_seed_overrefused": (False, False, True, False),
    "benign_seed_helped": (False, False, False, False),
    "harmful_seed_prompt_turned_benign_complied": (True, False, False, False),
}


def exchange(labels: tuple[bool, bool, bool, bool]) -> AttackExchange:
    seed, prompt, refused, response = labels
    return AttackExchange(
        is_seed_harmful=seed, is_prompt_harmful=prompt, is_refused=refused, is_response_harmful=response
    )


def test_pioneer_and_observer_share_the_sum() -> None:
    assert shared_sum([0.8, 0.5]) == near([ORACLES["09_cory"]["shared_reward"]] * 2)


def test_a_proposed_task_pays_by_how_hard_it_was() -> None:
    outcomes, ssp = [1.0, 0.0, 0.0, 1.0, 0.0], ORACLES["24_ssp"]
    assert proposer_reward(outcomes) == near(ssp["proposer_1_minus_acc"]) == near(1 - ssp["success"])
    assert proposer_reward(outcomes, mode="intermediate") == near(ssp["proposer_intermediate"])
    assert proposer_reward([1.0] * 5, mode="intermediate") == near(ssp["proposer_intermediate_at_1"])
    assert group_advantages(outcomes, ["q"] * 5) == near(ssp["solver_adv"])


@given(solved=st.integers(0, 6))
def test_an_intermediate_task_is_best_at_half_and_worth_nothing_at_both_ends(solved: int) -> None:
    found = proposer_reward([1.0] * solved + [0.0] * (6 - solved), mode="intermediate")
    assert 0 <= found <= proposer_reward([1.0] * 3 + [0.0] * 3, mode="intermediate") == 1
    assert (found == 0) == (solved in (0, 6))


def test_an_invalid_task_pays_its_penalty_and_need_not_be_tried() -> None:
    assert proposer_reward([], is_valid=False, invalid=-1.0) == -1
    assert proposer_reward([0.0], is_valid=False) == 0
    with pytest.raises(ValueError, match="has no outcomes"):
        proposer_reward([])
    with pytest.raises(ValueError, match=r"outcome 1\.5"):
        proposer_reward([0.5, 1.5])


@pytest.mark.parametrize("name", ATTACKS)
def test_attacker_and_defender_are_paid_by_the_table(name: str) -> None:
    assert list(RedTeamRewards()(exchange(ATTACKS[name]))) == near(ORACLES["25_self_redteam"][name])


def test_all_one_weighs_every_comparison_alike() -> None:
    # Faithful, complied, harmful, both in form: 1 + 1 + 1 + 1; and -1 - 1 + 1.
    labels = exchange(ATTACKS["harmful_seed_complied_harmful"])
    assert RedTeamRewards.all_one()(labels) == (4, -1)
    assert RedTeamRewards.all_one()(replace(labels, is_attack_readable=False, is_answer_readable=False)) == (2, -3)


@pytest.mark.parametrize("name", ["is_prompt_harmful", "is_refused", "is_response_harmful"])
def test_a_missing_label_is_refused_and_never_taken_for_compliance(name: str) -> None:
    labels = exchange(ATTACKS["harmful_seed_refused"])
    with pytest.raises(ValueError, match=f"without a label {name}"):
        RedTeamRewards()(replace(labels, **{name: None}))


@given(labels=st.tuples(*[st.booleans()] * 4), weight=st.floats(0.1, 4))
def test_harm_and_refusal_are_zero_sum_where_their_weights_are_equal(
    labels: tuple[bool, bool, bool, bool], weight: float
) -> None:
    rewards = RedTeamRewards(
        attack_revision=0, attack_refusal=weight, defence_refusal=weight, attack_harm=1, defence_harm=1, form=0
    )
    attacker, defender = rewards(exchange(labels))
    assert attacker == pytest.approx(-defender)
