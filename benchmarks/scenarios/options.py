"""What `mas bench scenarios` is asked."""

from dataclasses import dataclass, field

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.scenarios.catalogue import scenario_names, sized

STEP, CLONE, SNAPSHOT, RESTORE, ROLLOUT = "step", "clone", "snapshot", "restore", "rollout"
OPERATIONS, CALLS = "operations", "engine calls"
"""What is counted as work: by the rollout calls, by all others operations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """How much work one round holds.

    Attributes:
        batch: operations after which the clock is looked at. seconds: for which batches go on; one is made at least.
        tasks: rollouts, one after the other. call_s: seconds that one call of the engine takes.
    """

    batch: int = 50
    seconds: float = 0.1
    tasks: int = 1
    call_s: float = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenariosBench:
    """One benchmark.

    Attributes:
        scenarios: names; size: of all of them, None: the smallest of each.
        repeats: measured rounds of each.
        without: rows that are left out; only the rollout can be.

    Raises:
        ConfigError: no such scenario, no such size of one, or nothing of that name to leave out.
    """

    scenarios: tuple[str, ...] = field(default_factory=lambda: tuple(scenario_names()))
    size: str | None = None
    repeats: int = 3
    without: frozenset[str] = frozenset()
    amounts: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        for name in self.scenarios:
            sized(name, self.size)
        for name in self.without:
            if name != ROLLOUT:
                raise ConfigError(f"--without {name}: nothing to leave out. {did_you_mean(name, [ROLLOUT])}")
