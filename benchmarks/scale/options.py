"""What `mas bench scale` is asked."""

import math
from dataclasses import dataclass, field

from mas.cluster.contract import CLUSTERS
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much work one round holds.

    Attributes:
        steps: training steps of a round, one after the other; `tasks`: of each of them, all at once.
        turns: rounds of steps for each one of orders: short ones, as what other programs do changes within seconds.
        orders: for each worker, one after the other.
        bases: workers with the tiny base that are started; 0: none.
    """

    steps: int = 2
    turns: int = 5
    tasks: int = 16
    orders: int = 24
    bases: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleBench:
    """One benchmark.

    Attributes:
        kinds: of clusters, keys of `CLUSTERS`.
        workers: numbers of workers; 1 is what the others are compared with.
        latency_ms: of every call of the engine.
        repeats: measured rounds of each.

    Raises:
        ConfigError: no such kind, numbers without 1, one that is there twice, or a latency of none.
    """

    kinds: tuple[str, ...] = tuple(CLUSTERS)
    workers: tuple[int, ...] = (1, 2, 4, 8)
    latency_ms: float = 20.0
    repeats: int = 3
    amounts: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        for name in self.kinds:
            if name not in CLUSTERS:
                raise ConfigError(f"--kinds {name}: there is no such kind of cluster. {did_you_mean(name, CLUSTERS)}")
        if not self.kinds or len(set(self.kinds)) < len(self.kinds):
            raise ConfigError(f"--kinds {','.join(self.kinds)}: give each kind once, of {', '.join(CLUSTERS)}")
        if 1 not in self.workers or min(self.workers) < 1 or len(set(self.workers)) < len(self.workers):
            shown = ",".join(map(str, self.workers))
            raise ConfigError(f"--workers {shown}: give different numbers, 1 among them, as in 1,2,4,8")
        if not (math.isfinite(self.latency_ms) and self.latency_ms > 0):
            raise ConfigError(f"--latency-ms {self.latency_ms:g}: give milliseconds above 0, as in 20")

    @property
    def most(self) -> int:
        """The largest number of workers."""
        return max(self.workers)


def split(words: str) -> tuple[str, ...]:
    """What stands between commas."""
    return tuple(word.strip() for word in words.split(",") if word.strip())


def numbers(option: str, words: str) -> tuple[int, ...]:
    """Whole numbers between commas.

    Raises:
        ConfigError: there is another word among them.
    """
    try:
        return tuple(int(word) for word in split(words))
    except ValueError:
        raise ConfigError(f"{option} {words}: give whole numbers with commas between, as in 1,2,4,8") from None
