"""What `mas bench staleness` is asked."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

CASES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "relay": ("scenario=relay", "train.steps=60"),
        "two_hop": ("scenario=two_hop", "train.steps=60"),
        "smollm2": ("scenario=shop", "model=smollm2", "algorithm.sampler.candidates=8", "train.steps=20"),
    }
)
"""Name -> what is trained, as words of `mas train`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StalenessBench:
    """One benchmark.

    Attributes:
        cases: names in `CASES`.
        staleness: values of `train.staleness`; the first is what the others are compared with.
        repeats: measured runs of each, with another seed each.
        words: further words of `mas train`, for all runs.

    Raises:
        ConfigError: no such case, or a staleness that is negative or there twice.
    """

    cases: tuple[str, ...] = ("relay", "two_hop")
    staleness: tuple[int, ...] = (0, 1, 2)
    repeats: int = 3
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.cases:
            if name not in CASES:
                raise ConfigError(f"--case {name}: there is no such case. {did_you_mean(name, CASES)}")
        if len(set(self.staleness)) < len(self.staleness) or min(self.staleness, default=-1) < 0:
            raise ConfigError(f"--staleness is {list(self.staleness)}: give different numbers from 0 on, 0 first")
