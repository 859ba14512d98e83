"""Rounds: who runs when, and what a ratio is."""

import pytest

from benchmarks.rounds import Timing, ratio, rotated, take_turns


class Counting:
    """Writes down that it ran; makes as many tokens as its round's number."""

    def __init__(self, name: str, seen: list[tuple[int, str]]) -> None:
        self.name = name
        self._seen = seen

    async def run(self, number: int) -> int:
        self._seen.append((number, self.name))
        return 10 + number


@pytest.mark.nightly
async def test_everybody_runs_once_a_round_in_an_order_that_moves_on() -> None:
    seen: list[tuple[int, str]] = []
    told: list[str] = []
    timings = await take_turns([Counting(name, seen) for name in "xyz"], 3, told.append)
    orders = ["".join(name for number, name in seen if number == found) for found in range(4)]
    assert orders == ["xyz", "yzx", "zxy", "xyz"]
    assert [number for number, _ in seen] == sorted(number for number, _ in seen)
    assert {name: timing.tokens for name, timing in timings.items()} == dict.fromkeys("xyz", (11, 12, 13))
    assert [line.partition(":")[0] for line in told] == ["warm-up", "round 1 of 3", "round 2 of 3", "round 3 of 3"]


@pytest.mark.nightly(of=16)
async def test_the_warm_up_is_not_measured() -> None:
    timings = await take_turns([Counting("x", [])], 2, lambda text: None)
    assert len(timings["x"].seconds) == 2
    assert 10 not in timings["x"].tokens


def test_rotating_keeps_everybody() -> None:
    assert rotated("abc", 4) == ["b", "c", "a"]


def test_rates_are_tokens_over_seconds() -> None:
    assert Timing((100, 100), (2.0, 4.0)).rates == (50.0, 25.0)


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_the_ratio_of_medians() -> None:
    # Tokens per second (100, 40, 20) and (100, 10, 10): ratios 1, 4 and 2, median 2; the medians' ratio would be 4.
    first = Timing((1, 1, 1), (0.01, 0.025, 0.05))
    second = Timing((1, 1, 1), (0.01, 0.1, 0.1))
    assert ratio(first, second) == pytest.approx(2.0)
    assert ratio(second, first) == pytest.approx(0.5)


def test_a_round_in_which_the_machine_was_slow_for_all_changes_no_ratio() -> None:
    calm = (Timing((10, 10, 10), (1.0, 1.0, 1.0)), Timing((10, 10, 10), (2.0, 2.0, 2.0)))
    noisy = (Timing((10, 10, 10), (1.0, 9.0, 5.0)), Timing((10, 10, 10), (2.0, 18.0, 10.0)))
    assert ratio(*calm) == ratio(*noisy) == pytest.approx(2.0)


def test_cpu_time_per_unit_is_the_median_of_the_rounds() -> None:
    # 20, 30 and 10 µs a unit.
    assert Timing((100, 100, 200), (1.0, 1.0, 1.0), (0.002, 0.003, 0.002)).cpu_us == pytest.approx(20.0)


@pytest.mark.nightly(of=16)
async def test_every_measured_round_has_its_cpu_time() -> None:
    class Busy:
        name = "busy"

        async def run(self, number: int) -> int:
            return sum(range(20_000)) and 1

    timings = await take_turns([Busy()], 2, lambda text: None)
    assert len(timings["busy"].cpu_s) == 2
    assert min(timings["busy"].cpu_s) > 0
