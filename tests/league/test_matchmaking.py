"""Whom to play next: every distribution by its formula."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas.core.errors import ConfigError
from mas.league.matchmaking import draw, latest, matched, mixed, prioritised, uniform

POOL = ("a", "b", "c")
POINTS = st.dictionaries(st.text(min_size=1, max_size=3), st.floats(0, 1), min_size=1, max_size=8)


def test_the_latest_and_all_alike() -> None:
    assert latest(POOL) == {"a": 0, "b": 0, "c": 1}
    assert uniform(POOL) == pytest.approx(dict.fromkeys(POOL, 1 / 3))


def test_prioritised_play_by_hand() -> None:
    points = {"weak": 0.9, "even": 0.5, "strong": 0.2}
    # (1 - p)^2: 0.01, 0.25, 0.64, together 0.9.
    assert prioritised(points, "hard", 2) == pytest.approx({"weak": 1 / 90, "even": 25 / 90, "strong": 64 / 90})
    # p (1 - p): 0.09, 0.25, 0.16, together 0.5.
    assert prioritised(points, "even") == pytest.approx({"weak": 0.18, "even": 0.5, "strong": 0.32})
    assert prioritised(points, "hard", 0) == pytest.approx(uniform(tuple(points)))


def test_who_is_beaten_always_is_left_out_unless_all_are() -> None:
    assert prioritised({"a": 1.0, "b": 0.5}) == {"a": 0, "b": 1}
    assert prioritised({"a": 1.0, "b": 1.0}) == {"a": 0.5, "b": 0.5}
    assert prioritised({"a": 1.0, "b": 0.0}, "even") == {"a": 0.5, "b": 0.5}


@given(POINTS, st.sampled_from(["hard", "even"]), st.floats(0, 8))
def test_probabilities_are_such_and_hard_ones_fall_with_points(points, weighting, power) -> None:
    found = prioritised(points, weighting, power)
    assert found.keys() == points.keys()
    assert min(found.values()) >= 0
    assert sum(found.values()) == pytest.approx(1)
    if weighting == "hard":
        ranked = sorted(points, key=points.__getitem__)
        assert all(found[one] >= found[other] - 1e-12 for one, other in pairwise(ranked))


@given(POINTS, st.floats(0, 1))
def test_a_mix_has_the_share_of_each_part(points, share) -> None:
    names = tuple(points)
    found = mixed([(share, latest(names)), (1 - share, prioritised(points))])
    rest = prioritised(points)
    assert found == pytest.approx({name: share * (name == names[-1]) + (1 - share) * rest[name] for name in names})


def test_texts_say_the_same_as_functions() -> None:
    points = {"a": 0.9, "b": 0.3}
    known = {**points, "c": 0.5}
    assert matched("latest", POOL, points) == latest(POOL)
    assert matched("uniform", POOL, points) == pytest.approx(uniform(POOL))
    assert matched("pfsp", POOL, points) == pytest.approx(prioritised(known))
    assert matched("pfsp:4", POOL, points) == pytest.approx(prioritised(known, "hard", 4))
    assert matched("even", POOL, points) == pytest.approx(prioritised(known, "even"))
    mix = matched("0.5 * latest + 0.3*uniform+0.2*pfsp:1", POOL, points)
    wanted = mixed([(0.5, latest(POOL)), (0.3, uniform(POOL)), (0.2, prioritised(known, "hard", 1))])
    assert mix == pytest.approx(wanted)


def test_draws_have_the_frequencies_and_follow_the_generator() -> None:
    wanted = {"a": 0.2, "b": 0.0, "c": 0.8}
    random = Random(3)
    found = Counter(draw(wanted, random) for _ in range(5000))
    assert set(found) == {"a", "c"}
    assert found["a"] / 5000 == pytest.approx(0.2, abs=0.02)
    assert [draw(wanted, Random(seed)) for seed in range(9)] == [draw(wanted, Random(seed)) for seed in range(9)]


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        ("lastest", "Did you mean 'latest'"),
        ("0.5*latest", "must be 0 or more and add up to 1"),
        ("x*latest+0.5*uniform", "'x' in matchmaking 'x.latest.0.5.uniform' is no number"),
        ("latest:2", "pfsp alone takes a number"),
        ("pfsp:-1", "would prefer those who lose"),
        ("nan*self+1*latest", "'nan' in matchmaking .* is no finite number"),
        ("-inf*uniform+inf*latest", "'-inf' in matchmaking .* is no finite number"),
        ("pfsp:nan", "'nan' in matchmaking 'pfsp:nan' is no finite number"),
        ("pfsp:inf", "'inf' in matchmaking 'pfsp:inf' is no finite number"),
    ],
)
def test_what_is_no_matchmaking_is_refused(mix: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        matched(mix, POOL, {})


def test_a_great_power_leaves_the_hardest_alone() -> None:
    # 0.7^2000 is no number of its own any more; 0.7 / 0.7 is.
    points = {"weak": 0.9, "strong": 0.3, "middling": 0.5}
    assert matched("pfsp:2000", tuple(points), points) == pytest.approx({"weak": 0, "strong": 1, "middling": 0})
    assert prioritised({"a": 0.5, "b": 0.5, "c": 1.0}, power=1e6) == {"a": 0.5, "b": 0.5, "c": 0.0}


@pytest.mark.parametrize("power", [float("nan"), float("inf")])
def test_powers_that_are_not_finite_are_refused(power: float) -> None:
    with pytest.raises(ConfigError, match="is no finite number: it must be 0 or more"):
        prioritised({"a": 0.5}, power=power)


def test_shares_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="must be 0 or more and add up to 1"):
        mixed([(float("nan"), latest(POOL)), (1.0, uniform(POOL))])


def test_impossible_pools_are_refused() -> None:
    for function in (latest, uniform):
        with pytest.raises(ConfigError, match="nobody to play against"):
            function(())
    with pytest.raises(ConfigError, match=r"1\.2 points per game against 'a'"):
        prioritised({"a": 1.2})
