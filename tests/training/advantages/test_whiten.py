"""Normalising over a batch, over rows or tokens, of all agents or of each."""

from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles import ORACLES, near

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.normalisation import whiten

GOLDEN = ORACLES["28_baselines"]
REWARDS, LENGTHS, KEYS = [1.0, 0.0, 0.0, 0.0], [2, 4, 4, 2], ["g"] * 4
ROWS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(-8, 8).map(lambda n: n / 4), st.integers(0, 5)), min_size=1
)


def columns(rows: Any) -> tuple[list[str], list[float], list[int]]:
    return [row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows]


def test_reinforce_plus_plus_whitens_over_all_tokens() -> None:
    assert whiten(REWARDS, tokens=LENGTHS) == near(GOLDEN["reinforcepp_gamma1"])


def test_its_baseline_variant_takes_the_prompts_mean_off_first() -> None:
    centred = group_advantages(REWARDS, KEYS, scale="none")
    assert whiten(centred, tokens=LENGTHS) == near(GOLDEN["reinforcepp_baseline"])


def test_comas_whitens_the_tokens_of_each_agent() -> None:
    golden = ORACLES["08_comas"]
    # CoMAS has sqrt(var) + 1e-8 where `whiten` has sqrt(var + 1e-8): of larger values the same to five digits
    large = [1000 * value for value in golden["token_adv"]]
    found = whiten([*large, 5.0, 7.0], ["a"] * 3 + ["b"] * 2)
    assert found[:3] == pytest.approx(golden["token_adv_batch_normalised"], abs=1e-5)
    assert found[3:] == near([-0.707107, 0.707107])


def test_the_guard_holds_tiny_differences_back() -> None:
    # 0 and 2e-4: mean 1e-4, variance 2e-8; 1e-4 / sqrt(3e-8).
    assert whiten([0.0, 2e-4])[1] == near(0.577350)


@given(rows=ROWS)
def test_a_count_of_tokens_is_that_many_values(rows: Any) -> None:
    keys, values, tokens = columns(rows)
    spread_out = whiten(
        [v for v, n in zip(values, tokens, strict=True) for _ in range(n)],
        [k for k, n in zip(keys, tokens, strict=True) for _ in range(n)],
    )
    counted = whiten(values, keys, tokens=tokens)
    assert spread_out == near([a for a, n in zip(counted, tokens, strict=True) for _ in range(n)])


@given(rows=ROWS)
def test_every_buffer_has_mean_zero_and_unit_spread_or_nothing(rows: Any) -> None:
    keys, values, _ = columns(rows)
    found = whiten(values, keys)
    for name in set(keys):
        own = [a for key, a in zip(keys, found, strict=True) if key == name]
        if len({v for key, v in zip(keys, values, strict=True) if key == name}) < 2:
            assert own == [0.0] * len(own)
        else:
            assert fmean(own) == pytest.approx(0, abs=1e-9)
            assert stdev(own) == pytest.approx(1, abs=1e-5)


@given(rows=ROWS, shift=st.integers(-8, 8))
def test_a_shift_of_all_values_changes_nothing(rows: Any, shift: int) -> None:
    keys, values, tokens = columns(rows)
    moved = whiten([value + shift for value in values], keys, tokens=tokens)
    assert moved == near(whiten(values, keys, tokens=tokens))


def test_a_prompt_with_one_answer_counts_as_average() -> None:
    # Centred: 0.5, -0.5 and, alone, 0; ddof 1: variance 0.25.
    found = whiten(group_advantages([1.0, 0.0, 9.0], ["a", "a", "b"], scale="none"))
    assert found == near([1.0, -1.0, 0.0])


def test_lengths_and_counts_are_checked() -> None:
    with pytest.raises(ValueError, match="1 values but 2 keys"):
        whiten([1.0], ["a", "b"])
    with pytest.raises(ValueError, match="2 values but 1 counts of tokens"):
        whiten([1.0, 2.0], tokens=[1])
    with pytest.raises(ValueError, match="has -1 tokens"):
        whiten([1.0, 2.0], tokens=[1, -1])
