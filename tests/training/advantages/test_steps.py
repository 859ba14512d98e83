"""Step terms beside trajectory terms, with statistics once per trajectory."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.steps import (
    once_per_trajectory,
    over_trajectories,
    random_groups,
    returns_to_go,
    with_steps,
)
from mas.training.batch import token_weights

GIGPO, SRGPO, OPRL = (ORACLES[name] for name in ("06_gigpo", "29_srgpo", "18_oprl"))
# Section 6: A visits s0, s1, s2 and is paid 1 at its end; B visits s0, s1, s3 and is paid nothing.
STATES, RUNS, STEPS = ["s0", "s1", "s2", "s0", "s1", "s3"], ["A"] * 3 + ["B"] * 3, [0, 1, 2] * 2
PAID = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


def flat(rows: list[list[float]]) -> list[float]:
    return [value for row in rows for value in row]


def episode_term(rewards: list[float], runs: list[str], **options: Any) -> list[float]:
    keys = ["task"] * len(runs)
    return once_per_trajectory(rewards, keys, runs, lambda values, own: group_advantages(values, own, **options))


@pytest.mark.parametrize(("scale", "wanted"), [("none", "adv_no_std"), ("std", "adv_std")])
def test_gigpo(scale: Any, wanted: str) -> None:
    returns = over_trajectories(PAID, RUNS, STEPS, lambda rewards: returns_to_go(rewards, 0.95))
    step = group_advantages(returns, STATES, scale=scale)
    episode = episode_term([1.0] * 3 + [0.0] * 3, RUNS, scale=scale)
    assert with_steps(episode, step) == near(flat(GIGPO[wanted]))
    assert [episode[0], episode[3]] == near(GIGPO["episode_adv_no_std" if scale == "none" else "episode_adv_std"])


def test_a_long_trajectory_does_not_count_more_than_a_short_one() -> None:
    # Lengths 3 and 1; statistics over rows would give the published code's values.
    runs, rewards = ["A"] * 3 + ["B"], [1.0] * 3 + [0.0]
    found = episode_term(rewards, runs)
    assert [found[0], found[3]] == near(GIGPO["unequal_lengths_episode_adv_std"])
    rows = group_advantages(rewards, ["task"] * 4)
    assert [rows[0], rows[3]] == near(GIGPO["unequal_lengths_code_variant"])


def test_flow_grpo_gives_every_turn_its_rollouts_advantage() -> None:
    golden, turns = ORACLES["03_flow_grpo"], [4, 1, 1, 2]
    runs = [name for name, count in zip("abcd", turns, strict=True) for _ in range(count)]
    rewards = [reward for reward, count in zip([1.0, 0.0, 0.0, 1.0], turns, strict=True) for _ in range(count)]
    found = episode_term(rewards, runs)
    wanted = [a for a, n in zip(golden["paper_adv_per_trajectory"], turns, strict=True) for _ in range(n)]
    assert found == near(wanted)
    rows = group_advantages(rewards, ["task"] * 8)
    assert [rows[index] for index in (0, 4, 5, 6)] == near(golden["row_weighted_variant"])
    weights = token_weights([1] * len(runs), "trajectory_mean", 1, runs)
    assert [weights[runs.index(run)] for run in "abcd"] == near(golden["weight_of_each_turn_in_loss"])
    assert sum(weights) == near(golden["weights_sum"])


def test_srgpo() -> None:
    step = group_advantages([0.0, 0.5, 1.0, 0.5], ["one", "two", "one", "two"])
    assert step == near(SRGPO["step_adv_random_groups"])
    episode = episode_term([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"])
    assert [episode[0], episode[2]] == near(SRGPO["episode_adv"])
    assert with_steps(episode, step, 0.5) == near(SRGPO["total_w05"])
    assert group_advantages([0.0, 0.5, 1.0, 0.5], ["all"] * 4) == near(SRGPO["step_adv_one_group"])


def test_oprl_compares_outcomes_and_steps_with_the_others() -> None:
    rewards = OPRL["step_reward"]["ok"] + OPRL["step_reward"]["bad"]
    options: dict[str, Any] = {"baseline": "leave_one_out", "scale": "none"}
    step = group_advantages(rewards, ["task"] * 4, **options)
    assert step == near(OPRL["step_rloo_all_steps"])
    assert step != near(OPRL["step_rloo_first_row_baseline"])
    episode = episode_term([1.0, 1.0, 0.0, 0.0], ["ok", "ok", "bad", "bad"], **options)
    assert [episode[0], episode[2]] == near(OPRL["outcome_rloo"])
    assert with_steps(episode, step) == near(OPRL["total_adv"])


def test_hrpo_adds_a_reward_per_action() -> None:
    actions = [0.2, -0.1, 0.0, 0.3, 0.1, 0.1, -0.2, 0.0]
    episode = episode_term([1.0, 1.0, 0.0, 0.0] * 2, [f"run {index // 2}" for index in range(8)])
    assert with_steps(episode, actions, 0.5) == near(flat(ORACLES["11_hrpo_our_reading"]["adv"]))


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=6), data=st.data())
def test_repeating_a_trajectorys_rows_changes_no_advantage(lengths: list[int], data: Any) -> None:
    rewards = data.draw(st.lists(st.integers(-4, 4).map(float), min_size=len(lengths), max_size=len(lengths)))
    runs = [str(run) for run, count in enumerate(lengths) for _ in range(count)]
    once = group_advantages(rewards, ["task"] * len(rewards))
    assert episode_term([rewards[int(run)] for run in runs], runs) == [once[int(run)] for run in runs]


@given(size=st.integers(2, 5), count=st.integers(1, 20), seed=st.integers(0, 3), data=st.data())
def test_random_groups_are_full_but_the_last_and_do_not_depend_on_order(
    size: int, count: int, seed: int, data: Any
) -> None:
    labels = [f"row {index}" for index in range(count)]
    keys = random_groups(labels, size, "step", seed)
    sizes = sorted((keys.count(key) for key in set(keys)), reverse=True)
    assert sizes == [size] * (count // size) + ([count % size] if count % size else [])
    shuffled = data.draw(st.permutations(labels))
    by_label = dict(zip(labels, keys, strict=True))
    assert random_groups(shuffled, size, "step", seed) == [by_label[label] for label in shuffled]


def test_random_groups_change_with_the_seed_and_stay_within_their_scope() -> None:
    labels, tasks = [str(index) for index in range(32)], ["x", "y"] * 16
    assert random_groups(labels, 4, 1) != random_groups(labels, 4, 2)
    keys = random_groups(labels, 4, 1, within=tasks)
    assert all(key[0] == task for key, task in zip(keys, tasks, strict=True))
    assert len({place for scope, place in keys if scope == "x"}) == 4
    # Each scope has a shuffle of its own.
    assert [place for scope, place in keys if scope == "x"] != [place for scope, place in keys if scope == "y"]


@given(values=st.permutations([1.0, 2.0, 4.0, 8.0]))
def test_rows_are_read_in_the_order_of_their_steps_and_given_back_in_their_own(values: list[float]) -> None:
    steps = [int(value) for value in values]
    found = over_trajectories(values, ["run"] * 4, steps, returns_to_go)
    wanted = {1.0: 15.0, 2.0: 14.0, 4.0: 12.0, 8.0: 8.0}
    assert found == [wanted[value] for value in values]


def test_rows_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ValueError, match=r"trajectory 'r' of group 'g' has rows with rewards 1\.0 and 2\.0"):
        once_per_trajectory([1.0, 2.0], ["g", "g"], ["r", "r"], group_advantages)
    with pytest.raises(ValueError, match="trajectory 'r' has two rows of one step"):
        over_trajectories([1.0, 2.0], ["r", "r"], [0, 0], returns_to_go)
    with pytest.raises(ValueError, match="1 values but 2 trajectories"):
        over_trajectories([1.0], ["r", "r"], [0], returns_to_go)
    with pytest.raises(ValueError, match="1 rewards but 2 group keys"):
        once_per_trajectory([1.0], ["g", "g"], ["r"], group_advantages)
    with pytest.raises(ValueError, match="1 advantages of episodes but 2 advantages of steps"):
        with_steps([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="random groups of 1"):
        random_groups(["a"], 1)
    with pytest.raises(ValueError, match="2 rows have only 1 labels"):
        random_groups(["a", "a"], 2)
    with pytest.raises(ValueError, match="1 labels but 2 scopes"):
        random_groups(["a"], 2, within=["x", "y"])
