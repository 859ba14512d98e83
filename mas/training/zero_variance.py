"""Noticing that there is nothing left to compare: groups whose rewards are all equal have advantages of 0.

Source: advantage collapse as DAPO describes it, arXiv 2503.14476, section 3.2; `sampler.refill` is its cure.
"""

from collections.abc import Mapping
from typing import Any

from mas.config.algorithm import AlgorithmOptions

PATIENCE = 5
"""Steps in a row after which people are told."""


def flat_share(roles: Mapping[str, Mapping[str, float]]) -> float:
    """Share of the compared groups of all trained roles whose rewards are all equal; 1 where nothing was compared.

    Args:
        roles: metrics of a step, by role: `groups`, `groups_single`, `groups_zero_variance`, `is_trained`.
    """
    trained = [role for role in roles.values() if role["is_trained"]]
    compared = sum(role["groups"] - role["groups_single"] for role in trained)
    return sum(role["groups_zero_variance"] for role in trained) / compared if compared else 1.0


class ZeroVarianceWatch:
    """Counts, per role, the steps in a row in which all groups that were compared were flat."""

    def __init__(self) -> None:
        self._flat: dict[str, int] = {}

    @staticmethod
    def suits(algorithm: AlgorithmOptions) -> bool:
        """Whether the algorithm learns from differences inside groups alone."""
        others = ("none", "running", "critic")
        return algorithm.advantage.key == "group" and algorithm.advantage.baseline not in others

    def told(self, metrics: Mapping[str, Any]) -> str | None:
        """What people should be told after this step, once per collapse; None: nothing.

        A team that solves every task has nothing to compare either, and nobody has to be told.
        """
        fallen = []
        for role, values in metrics["roles"].items():
            compared = values["groups"] - values["groups_single"]
            is_flat = values["is_trained"] and 0 < compared == values["groups_zero_variance"]
            self._flat[role] = self._flat.get(role, 0) + 1 if is_flat else 0
            if self._flat[role] == PATIENCE and metrics["success"] < 1:
                fallen.append(role)
        if not fallen:
            return None
        names = ", ".join(fallen)
        return (
            f"{names}: nothing to compare for {PATIENCE} steps, as all candidates of a group are paid the same. More "
            "candidates, a higher temperature, algorithm.sampler.refill or easier tasks give them something to learn."
        )
