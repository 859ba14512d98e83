"""Competitors measured in turns, so that what else the machine does meets all of them alike.

One warm-up round, then rounds in which everybody runs once, each round in another order. A ratio of two competitors is
the median of their ratios within a round: noise that lasts longer than a round cancels.
"""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol, TypeVar

T = TypeVar("T")


class Competitor(Protocol):
    """One way to do the work. `name` is its row's."""

    @property
    def name(self) -> str: ...

    async def run(self, number: int) -> int:
        """Do round `number`'s work (0 is the warm-up) and return how many tokens, or other units, of it were wanted."""


@dataclass(frozen=True, slots=True)
class Timing:
    """One competitor's measured rounds: wanted tokens (or other units of work) and wall seconds of each.

    Attributes:
        cpu_s: CPU seconds of this process in each round, all threads together; empty where they were not measured.
    """

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]
    cpu_s: tuple[float, ...] = ()

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second, round by round."""
        return tuple(count / took for count, took in zip(self.tokens, self.seconds, strict=True))

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per unit of work: median over rounds."""
        return median(took / count * 1e6 for count, took in zip(self.tokens, self.cpu_s, strict=True))


@dataclass(slots=True)
class _Rounds:
    """One competitor's rounds so far."""

    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def freeze(self) -> Timing:
        return Timing(tuple(self.tokens), tuple(self.seconds), tuple(self.cpu_s))


async def take_turns(
    competitors: Sequence[Competitor], repeats: int, tell: Callable[[str], None]
) -> Mapping[str, Timing]:
    """Run everybody `repeats` times after one warm-up; keys are names.

    Args:
        tell: told what each round took, one line a round.
    """
    rounds = {one.name: _Rounds() for one in competitors}
    for number in range(repeats + 1):
        began = time.perf_counter()
        for one in rotated(competitors, number):
            gc.collect()
            start, start_cpu = time.perf_counter(), time.process_time()
            count = await one.run(number)
            took, took_cpu = time.perf_counter() - start, time.process_time() - start_cpu
            if number:
                own = rounds[one.name]
                own.tokens.append(count)
                own.seconds.append(took)
                own.cpu_s.append(took_cpu)
        what = f"round {number} of {repeats}" if number else "warm-up"
        tell(f"{what}: {time.perf_counter() - began:.1f} s")
    return {name: own.freeze() for name, own in rounds.items()}


def rotated(items: Sequence[T], number: int) -> list[T]:
    """The items from `number` on, then those before it."""
    start = number % len(items)
    return [*items[start:], *items[:start]]


def ratio(first: Timing, second: Timing) -> float:
    """Median over rounds of the first's tokens per second / the second's."""
    return median(a / b for a, b in zip(first.rates, second.rates, strict=True))
