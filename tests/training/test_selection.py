"""Selecting groups, tasks and samples: sections 1, 10, 20, 21, 28, 32, 35 and 36 of the formula sheet."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.sampling.branching import BRANCH_FROM, branch_score, to_expand, whole_rollouts
from mas.algorithms.parts.sampling.selection import (
    drop_equal,
    filter_groups,
    largest_multiple,
    largest_remainder,
    resample_on_correct,
    solvable_tasks,
    transcript_penalty,
)

ROC = ORACLES["32_grpo_roc"]
REWARDS = [1, 1, 1, 1, 0, 0, 1, 1]
PENALTIES = [0.5, 0, 1, 0.25, 0.3, 0.9, 0, 1.5]
GROUPS = {"a": [1.0, 1.0], "b": [1.0, 0.0], "c": [0.0, 0.0]}
GROUP_LISTS = st.dictionaries(
    st.integers(0, 99), st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=5), max_size=9
)


def test_groups_of_equal_rewards_are_dropped() -> None:
    kept = drop_equal(GROUPS).kept
    assert [key in kept for key in GROUPS] == ORACLES["28_baselines"]["batch_zero_variance_kept"]
    assert drop_equal({"alone": [1.0]}).dropped == ("alone",)


@pytest.mark.parametrize(
    ("by", "dropped"),
    [("mean", ("c", "d")), ("std", ("a", "c")), ("dapo", ("a", "c"))],
)
def test_groups_are_filtered_by_mean_spread_or_equality(by: str, dropped: tuple[str, ...]) -> None:
    # Means 1, 0.5, 0, 0.25; deviations 0, 0.707, 0, 0.354. The filter drops floor(0.5 x 4).
    groups = GROUPS | {"d": [0.0, 0.5]}
    found = filter_groups(groups, by)
    assert found.dropped == dropped
    assert found.kept == tuple(key for key in groups if key not in dropped)


def test_of_equal_groups_the_later_is_dropped_and_a_third_of_four_is_one() -> None:
    groups = {key: [0.5, 0.5] for key in "abcd"}
    assert filter_groups(groups, "mean", share=1 / 3).dropped == ("d",)
    assert filter_groups(groups, "mean", share=0).dropped == ()


@given(groups=GROUP_LISTS, share=st.floats(0, 0.99))
def test_what_a_filter_keeps_is_no_worse_than_what_it_drops(groups: dict[int, list[float]], share: float) -> None:
    found = filter_groups(groups, "mean", share=share)
    assert len(found.dropped) == math.floor(share * len(groups))
    means = {key: sum(rewards) / len(rewards) for key, rewards in groups.items()}
    assert all(means[bad] <= means[good] for bad in found.dropped for good in found.kept)


def test_tasks_that_peers_solve_are_no_task_for_a_leader() -> None:
    found = solvable_tasks({"a": 0.75, "b": 0.5, "c": 1.0})
    assert [key in found.kept for key in "abc"] == ORACLES["10_mlpo"]["task_kept_if_peer_accuracy_below_075"]


@pytest.mark.parametrize("seed", range(3))
def test_every_rank_gets_equally_many(seed: int) -> None:
    kept = largest_multiple(37, 8, seed)
    assert len(kept) == ORACLES["35_eapo"]["downsample"]["37_rounds_dp8"]
    assert list(kept) == sorted(set(kept))
    assert kept == largest_multiple(37, 8, seed)
    assert largest_multiple(7, 8, seed) == ()
    assert largest_multiple(16, 8, seed) == tuple(range(16))


def test_who_is_left_out_depends_on_the_seed() -> None:
    assert len({largest_multiple(37, 8, seed) for seed in range(9)}) > 5


@given(sizes=st.lists(st.integers(0, 40), max_size=5), share=st.floats(0, 1))
def test_counts_by_largest_remainder_always_add_up(sizes: list[int], share: float) -> None:
    keep = round(share * sum(sizes))
    counts = largest_remainder(sizes, keep)
    assert sum(counts) == keep
    for size, count in zip(sizes, counts, strict=True):
        assert 0 <= count <= size
        assert abs(count - size * keep / (sum(sizes) or 1)) < 1


@pytest.mark.parametrize(("name", "sizes", "counts"), [
    ("32->16, 5 pos 27 neg", (5, 27), [3, 13]),
    ("14->7, 5 pos 9 neg", (5, 9), [3, 4]),
    ("14->7, 3 pos 11 neg", (3, 11), [2, 5]),
])  # fmt: skip
def test_where_rounding_is_off_the_largest_remainder_is_not(
    name: str, sizes: tuple[int, int], counts: list[int]
) -> None:
    # Quotas 2.5 and 13.5, 2.5 and 4.5, 1.5 and 5.5: round() makes even numbers of all.
    keep = sum(sizes) // 2
    assert sum(round(size * keep / sum(sizes)) for size in sizes) == ROC["bankers_rounding_sum_problem"][name]
    assert largest_remainder(sizes, keep) == counts


def test_the_cleanest_successes_stay_and_failures_unselected() -> None:
    found = resample_on_correct([reward > 0 for reward in REWARDS], PENALTIES, keep=4)
    assert list(found.successes) == ROC["kept_positive"]
    advantages = group_advantages([float(REWARDS[number]) for number in found.kept], ["g"] * 4)
    # Failures are paid alike: whichever stays has the advantage of number 4, which the code of the paper keeps.
    after = ROC["adv_after"]
    assert advantages == near([after.get(str(number), after["4"]) for number in found.kept])


def test_failures_are_drawn_uniformly_whatever_their_penalty() -> None:
    drawn = {resample_on_correct([True] * 2 + [False] * 4, [0.0] * 6, keep=3, seed=seed).failures for seed in range(60)}
    # 3 of 6 with 2 successes: 1 and 2 failures of 4, 6 pairs.
    assert len(drawn) == 6


@given(
    rows=st.lists(st.tuples(st.booleans(), st.floats(0, 2)), min_size=1, max_size=32),
    share=st.floats(0, 1),
    least=st.integers(0, 3),
    seed=st.integers(0, 9),
)
def test_resampling_keeps_as_many_as_asked_and_each_class_as_far_as_it_can(
    rows: list[tuple[bool, float]], share: float, least: int, seed: int
) -> None:
    successes, penalties = [good for good, _ in rows], [penalty for _, penalty in rows]
    keep = round(share * len(rows))
    least = min(least, keep // 2)
    found = resample_on_correct(successes, penalties, keep=keep, least=least, seed=seed)
    assert len(set(found.kept)) == len(found.kept) == keep
    assert all(successes[number] for number in found.successes)
    assert not any(successes[number] for number in found.failures)
    assert len(found.successes) >= min(least, sum(successes))
    assert len(found.failures) >= min(least, len(rows) - sum(successes))
    lost = [penalties[n] for n, good in enumerate(successes) if good and n not in found.successes]
    assert all(penalties[number] <= min(lost, default=math.inf) for number in found.successes)


def test_a_rare_class_is_raised_to_its_least_number() -> None:
    # 1 of 16 successes in 8: a share of 0.5 is rounded to one or none; with at least 2 the other class spares it.
    successes = [True] * 2 + [False] * 14
    assert len(resample_on_correct(successes, [0.0] * 16, keep=8).successes) == 1
    assert len(resample_on_correct(successes, [0.0] * 16, keep=8, least=2).successes) == 2
    assert len(resample_on_correct([not good for good in successes], [0.0] * 16, keep=8, least=2).failures) == 2


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("2 tool calls 1 error, 1 answer, 3 turns", (2, 1, True)),
        ("no tool call, no answer tags", (0, 0, False)),
    ],
)
def test_penalty_of_a_transcript(name: str, numbers: tuple[int, int, bool]) -> None:
    calls, errors, has_form = numbers
    found = transcript_penalty(calls=calls, errors=errors, has_form=has_form)
    assert found == near(ROC["penalty_examples"][name])


@pytest.mark.parametrize(("root", "tool", "name"), [(0.4, 0.2, "root.4_tool.2"), (0.0, 2.0, "root0_tool2")])
def test_an_uncertain_question_gets_more_whole_rollouts(root: float, tool: float, name: str) -> None:
    assert whole_rollouts(16, root_entropy=root, tool_entropy=tool) == ORACLES["20_aepo"]["global_rollouts"][name]


@given(budget=st.integers(1, 64), root=st.floats(0, 1e4), tool=st.floats(0, 1e4))
def test_whole_rollouts_are_at_least_one_and_at_most_all(budget: int, root: float, tool: float) -> None:
    found = whole_rollouts(budget, root_entropy=root, tool_entropy=tool)
    assert 1 <= found <= budget
    assert found >= whole_rollouts(budget, root_entropy=root, tool_entropy=tool + 1)


@pytest.mark.parametrize(("consecutive", "is_branch"), [(0, True), (3, False)])
def test_branches_in_a_row_make_the_next_less_likely(consecutive: int, is_branch: bool) -> None:
    found = branch_score(0.5, entropy=0.7, root_entropy=0.4, consecutive=consecutive)
    assert found == near(ORACLES["20_aepo"]["branch_score"][f"u.5_dH.3_l{consecutive}"])
    assert (found >= BRANCH_FROM) is is_branch
    assert branch_score(0.9, entropy=9, root_entropy=0, consecutive=20) == 0
    assert branch_score(0.9, entropy=9, root_entropy=0, consecutive=0) == 1


def test_uncertain_nodes_with_few_siblings_are_expanded_first() -> None:
    # Scores 0.5, 0.55 - 0.05 = 0.5, 0.9 - 0.5 = 0.4, 0.45.
    assert to_expand([0.5, 0.55, 0.9, 0.45], [1, 2, 11, 1], count=3) == (0, 1, 3)
    assert to_expand([0.1], [1], count=6) == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: drop_equal({"a": []}), "group 'a' has no rewards"),
        (lambda: filter_groups(GROUPS, "mean", share=1.0), r"share 1\.0"),
        (lambda: solvable_tasks({"a": 1.2}), "task 'a' is 1.2"),
        (lambda: largest_multiple(3, 0, 1), "3 samples on 0 ranks"),
        (lambda: largest_remainder([1, 2], 4), r"keep 4 of classes of \[1, 2\]"),
        (lambda: resample_on_correct([True], [], keep=1), "1 samples but 0 penalties"),
        (lambda: resample_on_correct([True] * 4, [0.0] * 4, keep=3, least=2), "at least 2 of each"),
        (lambda: transcript_penalty(calls=1, errors=2, has_form=True), "2 errors in 1 calls"),
        (lambda: whole_rollouts(0, root_entropy=0, tool_entropy=0), "budget of 0"),
        (lambda: branch_score(1.5, entropy=0, root_entropy=0, consecutive=0), r"draw of 1\.5"),
        (lambda: to_expand([0.1], [], count=1), "1 entropies but 0"),
        (lambda: to_expand([0.1], [0], count=1), "1 for each"),
    ],
)
def test_what_makes_no_sense_is_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
