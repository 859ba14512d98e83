"""Competitors measured in turns, so that what else the machine does meets all of them alike.

One warm-up round, then rounds in which everybody runs once, each round in another order. A ratio of two competitors is
the median of their ratios within a round: noise that lasts longer than a round cancels.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol, TypeVar

T = TypeVar("T")


class Competitor(Protocol):
    """One way to do the work. `name` is its row's."""

    @property
    def name(self) -> str: ...

    async def run(self, number: int) -> int:
        """Do round `number`'s work (0 is the warm-up) and return how many tokens of it were wanted."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One competitor's measured rounds: wanted tokens and wall seconds of each."""

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second, round by round."""
        return tuple(count / took for count, took in zip(self.tokens, self.seconds, strict=True))


async def take_turns(
    competitors: Sequence[Competitor], repeats: int, tell: Callable[[str], None]
) -> Mapping[str, Timing]:
    """Run everybody `repeats` times after one warm-up; keys are names.

    Args:
        tell: told what each round took, one line a round.
    """
    tokens: dict[str, list[int]] = {one.name: [] for one in competitors}
    seconds: dict[str, list[float]] = {one.name: [] for one in competitors}
    for number in range(repeats + 1):
        began = time.perf_counter()
        for one in rotated(competitors, number):
            gc.collect()
            start = time.perf_counter()
            count = await one.run(number)
            took = time.perf_counter() - start
            if number:
                tokens[one.name].append(count)
                seconds[one.name].append(took)
        what = f"round {number} of {repeats}" if number else "warm-up"
        tell(f"{what}: {time.perf_counter() - began:.1f} s")
    return {name: Timing(tuple(tokens[name]), tuple(seconds[name])) for name in tokens}


def rotated(items: Sequence[T], number: int) -> list[T]:
    """The items from `number` on, then those before it."""
    start = number % len(items)
    return [*items[start:], *items[:start]]


def ratio(first: Timing, second: Timing) -> float:
    """Median over rounds of the first's tokens per second / the second's."""
    return median(a / b for a, b in zip(first.rates, second.rates, strict=True))
