"""What `mas bench learner` is asked. Needs no torch, so that mistakes are found at once."""

from collections import Counter
from dataclasses import dataclass
from importlib.util import find_spec

from benchmarks.learner.names import OPTIONAL, ROWS
from benchmarks.learner.workload import WorkloadOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

DEFAULT_WORKLOADS = ("cpu_10m", "tokens", "adapters", "smollm2")
"""Those that carry targets and need no GPU, and a pretrained model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerBench:
    """One benchmark.

    Attributes:
        repeats: measured rounds of each workload.
        seed: of weights, lengths, tokens, rewards and noise.
        without: keys of `OPTIONAL`.
        threads: torch threads of every competitor.
    """

    workloads: tuple[WorkloadOptions, ...]
    repeats: int = 5
    seed: int = 0
    without: frozenset[str] = frozenset()
    threads: int = 2

    def __post_init__(self) -> None:
        for name in self.without:
            if name not in OPTIONAL:
                raise ConfigError(f"--without {name}: nothing to leave out. {did_you_mean(name, OPTIONAL)}")
        twice = [name for name, count in Counter(one.name for one in self.workloads).items() if count > 1]
        if twice:
            raise ConfigError(f"--workload: two workloads are called {twice[0]!r}; change `name` in one of the files")
        if any(one.sweep is None for one in self.workloads) and find_spec("peft") is None:
            raise ConfigError(
                "mas's gradients are checked against PEFT's, which is not installed: pip install 'mas[bench]'"
            )

    @property
    def rows(self) -> tuple[str, ...]:
        """Short names of the competitors that are asked for, in the table's order."""
        left_out = {row for name in self.without for row in OPTIONAL[name]}
        return tuple(row for row in ROWS if row not in left_out)
