"""Study results as the terminal and the report show them: success of every arm in every scenario."""

from collections.abc import Mapping
from typing import Any

import msgspec

from mas.core.errors import ConfigError
from mas.observe.progress import format_number

SUCCESS = "success"
"""What results are of where nothing else is said."""


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm (a trained team or a baseline) reached in one scenario.

    Attributes:
        mean: success over seeds, in [0, 1], or another measure; `std`: over seeds with ddof = 1, None for one seed.
        seeds: the seeds, or only how many.
        tokens: mean tokens per seed that reaching it cost; None where they were not counted.
    """

    mean: float
    std: float | None = None
    seeds: tuple[int, ...] | int = 1
    tokens: float | None = None

    @property
    def seed_count(self) -> int:
        """How many seeds the mean is over."""
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)

    @property
    def success_text(self) -> str:
        """`0.950 ± 0.021`, or the mean alone for one seed."""
        spread = "" if self.std is None or self.seed_count < 2 else f" ± {self.std:.3f}"
        return f"{self.mean:.3f}{spread}"

    @property
    def seeds_text(self) -> str:
        """`3 (0, 1, 2)`, or the number alone when the seeds are not known."""
        if isinstance(self.seeds, int):
            return str(self.seeds)
        return f"{len(self.seeds)} ({', '.join(str(seed) for seed in self.seeds)})"

    @property
    def tokens_text(self) -> str:
        """`1.2M`, or `–` where they were not counted."""
        return "–" if self.tokens is None else format_number(round(self.tokens))


def read_results(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, ArmResult]]:
    """Check a study's plain mapping, `{scenario: {arm: {"mean": …, "std": …, "seeds": …, "tokens": …}}}`.

    Keys of an arm beyond these are for other readers and left out.

    Raises:
        ConfigError: an arm has no mean, or a value of the wrong kind; the message names scenario and arm.
    """
    checked: dict[str, dict[str, ArmResult]] = {}
    for scenario, arms in results.items():
        checked[scenario] = {}
        for arm, values in arms.items():
            try:
                checked[scenario][arm] = msgspec.convert(values, ArmResult)
            except msgspec.ValidationError as error:
                raise ConfigError(
                    f"Result of arm {arm!r} in scenario {scenario!r}: {error}. "
                    "It needs 'mean', and may have 'std', 'seeds' (list or number) and 'tokens'."
                ) from error
    return checked


def best_arms(arms: Mapping[str, ArmResult]) -> set[str]:
    """Names of the arms with the highest mean; several on a tie, none where there are no arms."""
    best = max((arm.mean for arm in arms.values()), default=None)
    return {name for name, arm in arms.items() if arm.mean == best}
