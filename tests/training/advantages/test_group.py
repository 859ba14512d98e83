"""The baselines and scales of `group`, and what it reports of its groups."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import (
    check_lengths,
    group_advantages,
    group_statistics,
    groups_of,
    standardised,
    std,
)

GOLDEN = ORACLES["28_baselines"]
# Section 28: one prompt, four samples, of 2, 4, 4 and 2 tokens.
REWARDS, LENGTHS, KEYS = [1.0, 0.0, 0.0, 0.0], [2, 4, 4, 2], ["g"] * 4
BASELINES = ["mean", "leave_one_out", "length_weighted", "best"]
ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(-8, 8).map(lambda n: n / 4), st.integers(1, 9)), min_size=1
)


def estimate(rows: Any, **options: Any) -> list[float]:
    keys, rewards, lengths = ([row[column] for row in rows] for column in range(3))
    return group_advantages(rewards, keys, lengths=lengths, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("opo", {"baseline": "length_weighted", "scale": "none", "lengths": LENGTHS}),
        ("gpg", {"scale": "nonzero"}),
        ("pass_at_k", {"baseline": "best"}),
    ],
)
def test_baselines_of_the_sheet(name: str, options: Any) -> None:
    assert group_advantages(REWARDS, KEYS, **options) == near(GOLDEN[name])


@pytest.mark.parametrize(
    ("section", "rewards", "wanted"),
    [
        ("12_hi_agent_our_reading", "foresight_reward", "high_level_adv"),
        ("33_e_grpo", "reward", "adv"),
        ("01_at_grpo", "coder_reward", "coder_adv"),
    ],
)
def test_sections_that_only_normalise(section: str, rewards: str, wanted: str) -> None:
    values = ORACLES[section][rewards]
    assert group_advantages(values, ["g"] * len(values)) == near(ORACLES[section][wanted])


def test_mlpo_takes_the_mean_alone() -> None:
    found = group_advantages([1.0, 0.0, 1.0, 1.0], KEYS, scale="none")
    assert found == near(ORACLES["10_mlpo"]["adv_mean_only"])


def test_search_self_play_pays_its_solver_by_group() -> None:
    found = group_advantages([1.0, 0.0, 0.0, 1.0, 0.0], ["g"] * 5)
    assert found == near(ORACLES["24_ssp"]["solver_adv"])


def test_groups_of_equal_rewards_are_the_ones_that_teach_nothing() -> None:
    # Section 28, DAPO: all right, some right, all wrong.
    reports = groups_of([1, 1, 1, 0, 0, 0], ["right", "right", "mixed", "mixed", "wrong", "wrong"])
    assert [report.dropped is None for report in reports.values()] == GOLDEN["batch_zero_variance_kept"]


def test_every_group_reports_size_variance_and_why_it_is_dropped() -> None:
    # a: mean 2, variance ((1-2)^2 + (3-2)^2) / 1 = 2.
    found = groups_of([1.0, 3.0, 5.0, 2.0, 2.0], ["a", "a", "b", "c", "c"])
    assert [(g.size, g.mean, g.dropped) for g in found.values()] == [
        (2, 2.0, None),
        (1, 5.0, "single"),
        (2, 2.0, "equal"),
    ]
    assert [g.variance for g in found.values()] == near([2.0, 0.0, 0.0])
    statistics = group_statistics([1.0, 3.0, 5.0, 2.0, 2.0], ["a", "a", "b", "c", "c"])
    assert (statistics.groups, statistics.single, statistics.zero_variance) == (3, 1, 1)
    assert group_statistics([1.0, 2.0], ["a", "b"]).spread == 0.0


@given(rows=ROWS, baseline=st.sampled_from(BASELINES), scale=st.sampled_from(["std", "none"]))
def test_one_alone_and_equal_rewards_get_exactly_nothing_and_are_counted(rows: Any, baseline: Any, scale: Any) -> None:
    found = estimate(rows, baseline=baseline, scale=scale)
    reports = groups_of([reward for _, reward, _ in rows], [key for key, _, _ in rows])
    for (key, _, _), advantage in zip(rows, found, strict=True):
        if reports[key].dropped:
            assert advantage == 0.0
    assert sum(report.size for report in reports.values()) == len(rows)


@given(rows=ROWS, shift=st.integers(-8, 8), baseline=st.sampled_from(BASELINES))
def test_a_shift_of_all_rewards_changes_nothing(rows: Any, shift: int, baseline: Any) -> None:
    moved = [(key, reward + shift, length) for key, reward, length in rows]
    assert estimate(moved, baseline=baseline) == near(estimate(rows, baseline=baseline))


@given(rows=ROWS)
def test_length_weighted_advantages_sum_to_zero_over_tokens(rows: Any) -> None:
    found = estimate(rows, baseline="length_weighted", scale="none")
    for name in {key for key, _, _ in rows}:
        tokens = [length * a for (key, _, length), a in zip(rows, found, strict=True) if key == name]
        assert sum(tokens) == pytest.approx(0, abs=1e-9)


@given(rows=ROWS)
def test_only_the_best_of_a_group_is_paid_and_never_less_than_nothing(rows: Any) -> None:
    found = estimate(rows, baseline="best")
    for (key, reward, _), advantage in zip(rows, found, strict=True):
        assert advantage >= 0
        if reward < max(r for k, r, _ in rows if k == key):
            assert advantage == 0


@given(rows=ROWS)
def test_without_a_baseline_the_rewards_are_the_advantages(rows: Any) -> None:
    assert estimate(rows, baseline="none", scale="none") == [reward for _, reward, _ in rows]


@given(rows=ROWS)
def test_leave_one_out_is_the_mean_difference_times_n_over_n_less_one(rows: Any) -> None:
    alone, plain = (estimate(rows, baseline=b, scale="none") for b in ("leave_one_out", "mean"))
    sizes = {key: report.size for key, report in groups_of([r for _, r, _ in rows], [k for k, _, _ in rows]).items()}
    for (key, _, _), one, other in zip(rows, alone, plain, strict=True):
        assert one == pytest.approx(other * sizes[key] / max(sizes[key] - 1, 1))


def test_gpg_with_nothing_but_zeros_is_zero() -> None:
    assert group_advantages([0.0] * 4, KEYS, scale="nonzero") == [0.0] * 4


def test_standard_deviations_count_one_less_by_default() -> None:
    # 1, 2, 3: squares 1 + 0 + 1; over 2 -> 1, over 3 -> 0.816497.
    assert (std([1, 2, 3]), std([1, 2, 3], ddof=0)) == near((1.0, 0.816497))
    assert standardised([1, 2, 3]) == near([-0.999999, 0, 0.999999])
    assert (std([4.0]), standardised([4.0]), standardised([])) == (0.0, [0.0], [])


def test_what_cannot_be_computed_is_refused() -> None:
    with pytest.raises(ValueError, match="4 rewards but 1 group keys"):
        groups_of(REWARDS, ["g"])
    with pytest.raises(ValueError, match="baseline=none compares nothing"):
        group_advantages(REWARDS, KEYS, baseline="none")
    with pytest.raises(ValueError, match="needs the number of trained tokens"):
        group_advantages(REWARDS, KEYS, baseline="length_weighted")
    with pytest.raises(ValueError, match="4 rewards but 1 lengths"):
        group_advantages(REWARDS, KEYS, baseline="length_weighted", lengths=[1])
    with pytest.raises(ValueError, match="a row has length 0"):
        group_advantages(REWARDS, KEYS, baseline="length_weighted", lengths=[1, 0, 1, 1])
    with pytest.raises(ValueError, match="1 these but 2 those: give as many"):
        check_lengths({"these": [1], "those": [1, 2]})
