"""The metrics of a step: of the team, each role and each adapter; whether anything is left to compare, and how often
loops are taken.

Groups whose rewards are all equal have advantages of 0. Source: advantage collapse as DAPO describes it, arXiv
2503.14476, section 3.2; `sampler.refill` is its cure.

`gates` says how often a team's loops are taken: what a gate, such as feedback only where it is needed, costs and saves.
A loop within another one counts from that one's last round. Source: the adaptive feedback of WaltzRL (The Alignment
Waltz, arXiv 2510.08240): a reply goes back to the conversation agent only where the feedback agent says that it must.

Shape legend: J loss tokens of several rows, one after the other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

import msgspec
import torch
from torch import Tensor

from mas.algorithms.parts.advantages.group import group_statistics
from mas.algorithms.parts.losses.off_policy import MASKED
from mas.algorithms.parts.losses.policy import importance_statistics
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.environment import mean_measures
from mas.core.records import Episode, Turn
from mas.training.updates.update import UpdateResult

Metrics = dict[str, float]
PATIENCE = 5
"""Steps in a row after which the user is told."""
_UNREAD = 0.95
"""Share of a role's outputs that do not parse above which that is why there is nothing to compare."""


def step_metrics(
    episodes: Sequence[Episode], improved: UpdateResult, rewards: RewardOptions, adapter_of: Mapping[str, str]
) -> dict[str, Any]:
    """Nested metrics: the team's at the top, `roles.NAME.*` below, `adapters.NAME.*` from the learner."""
    turns = [turn for episode in episodes for turn in episode.turns]
    played = [episode for episode in episodes if episode.status == "done"]
    roles = {}
    for role in dict.fromkeys(turn.role for turn in turns):
        own = [
            (turn, advantage) for turn, advantage in zip(turns, improved.advantages, strict=True) if turn.role == role
        ]
        roles[role] = _role_metrics([turn for turn, _ in own], [advantage for _, advantage in own], rewards)
        roles[role]["is_trained"] = float(role in adapter_of)
    return {
        "reward": fmean(sum(episode.rewards.values()) for episode in played),
        "success": fmean(episode.success for episode in played),
        "passes": pass_share(played),
        "episodes": {"done": len(played), "failed": len(episodes) - len(played)},
        "failed_attempts": sum(one.cause is not None for episode in episodes for one in episode.attempts),
        "collapse": flat_share(roles),
        **({"measures": measures} if (measures := mean_measures(one.measures for one in played)) else {}),
        "roles": roles,
        "adapters": {name: dict(values) for name, values in improved.learned.items()},
        **improved.metrics,
    }


def pass_share(episodes: Sequence[Episode]) -> float:
    """Share of team turns in which no action was committed."""
    return sum(episode.passes for episode in episodes) / max(sum(episode.length for episode in episodes), 1)


def _role_metrics(turns: Sequence[Turn], advantages: Sequence[float], rewards: RewardOptions) -> dict[str, Any]:
    rows = {(turn.group, turn.trajectory): total_reward(turn.rewards, rewards) for turn in turns}
    groups = group_statistics(list(rows.values()), [group for group, _ in rows])
    terms = {name for turn in turns for name in turn.rewards}
    return {
        "reward": fmean(rows.values()),
        "terms": {name: fmean(turn.rewards.get(name, 0.0) for turn in turns) for name in sorted(terms)},
        "advantage_std": pstdev(advantages),
        "groups": groups.groups,
        "groups_single": groups.single,
        "groups_zero_variance": groups.zero_variance,
        "reward_spread": groups.spread,
        "failures": fmean(turn.failure is not None for turn in turns),
        "turns": len(turns),
        "completion_tokens": sum(len(turn.completion_ids) for turn in turns),
    }


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

    def warning(self, metrics: Mapping[str, Any]) -> str | None:
        """The warning after this step, once per collapse; None: there is none.

        A team that solves every task has nothing to compare either, and gets no warning.
        """
        flat, unread = list[str](), list[str]()
        for role, values in metrics["roles"].items():
            compared = values["groups"] - values["groups_single"]
            is_unread = values["failures"] > _UNREAD
            is_idle = is_unread or compared == values["groups_zero_variance"]
            is_flat = values["is_trained"] and compared > 0 and is_idle
            self._flat[role] = self._flat.get(role, 0) + 1 if is_flat else 0
            if self._flat[role] == PATIENCE and metrics["success"] < 1:
                (unread if is_unread else flat).append(role)
        found = []
        if unread:
            found.append(
                f"{', '.join(unread)}: nothing to compare for {PATIENCE} steps, as outputs do not parse (failures "
                f"above {_UNREAD}). Constrain them to what the role may say (constraint: {{one_of: [...]}} in the "
                "team's file), or take a model that knows the form."
            )
        if flat:
            found.append(
                f"{', '.join(flat)}: nothing to compare for {PATIENCE} steps, as all candidates of a group are paid "
                "the same. More candidates, a higher temperature, tasks replaced as algorithm=dapo does, or easier "
                "tasks give them something to learn."
            )
        return " ".join(found) or None


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One loop over team turns.

    Attributes:
        triggered: share of team turns in which it was taken.
        rounds: how often it was taken in a team turn, mean.
        saved: rounds of those that its bound allows that were not needed, mean; `rounds` + `saved` is the bound.
    """

    triggered: float
    rounds: float
    saved: float

    def line(self, name: str) -> str:
        return f"loop {name}: triggered {self.triggered:.3f}, rounds {self.rounds:.3f}, saved {self.saved:.3f}"


def gates(bounds: Mapping[str, int], episodes: Sequence[Episode]) -> dict[str, Gate]:
    """Every loop over the team turns of all episodes; those that could not be played to their end are left out."""
    found = {}
    for name, bound in bounds.items():
        taken = [count for one in episodes if one.status == "done" for count in one.loops.get(name, ())]
        if taken:
            rounds = fmean(taken)
            found[name] = Gate(triggered=fmean(count > 0 for count in taken), rounds=rounds, saved=bound - rounds)
    return found


class MetricAccumulator:
    """Sums of one adapter's token metrics over everything that it learned from in a step.

    Attributes:
        rows: how many. turns: of every loss token.

    The numbers stay on the model's device until they are read, so that a GPU need not wait after every micro-batch.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.turns: list[Turn] = []
        self._values: dict[str, list[Tensor]] = defaultdict(list)
        self._of_updates: dict[str, list[float]] = defaultdict(list)

    def add(self, values: Mapping[str, Tensor], rows: int, tokens: slice, turns: Sequence[Turn]) -> None:
        """Add so many rows, whose loss tokens are these. `turns`: of every token of the micro-batch."""
        self.rows += rows
        self.turns += turns[tokens]
        for name, value_J in values.items():
            self._values[name].append(value_J[tokens])

    def note(self, name: str, value: float) -> None:
        """Add what was found of a whole update; its metric is the mean over updates."""
        self._of_updates[name].append(value)

    def values(self) -> dict[str, Tensor]:
        """What was added of every loss token, by the name of its metric."""
        return {name: torch.cat(parts) for name, parts in self._values.items()}

    def merge(self, other: "MetricAccumulator") -> None:
        """Add all that another one was given."""
        self.rows += other.rows
        self.turns += other.turns
        for name, parts in other._values.items():
            self._values[name] += parts
        for name, numbers in other._of_updates.items():
            self._of_updates[name] += numbers

    def metrics(self) -> Metrics:
        """Means over tokens, what the importance weights say of the samples, and counts; `behaviour_gap` is the mean
        over what was sampled in this step, 0 where all was replayed.

        Where several roles speak with this adapter, `ROLE.ess` and the like say it of each.
        """
        values = self.values()
        found = {name: float(value_J.double().mean()) for name, value_J in values.items()}
        fresh = [not turn.is_replayed for turn in self.turns]
        if not all(fresh):
            gap_J = values["behaviour_gap"][torch.tensor(fresh, device=values["behaviour_gap"].device)]
            found["behaviour_gap"] = float(gap_J.double().mean()) if any(fresh) else 0.0
        found |= _of_samples(values["importance"])
        roles = sorted({turn.role for turn in self.turns})
        for role in roles if len(roles) > 1 else ():
            own = torch.tensor([one.role == role for one in self.turns], device=values["importance"].device)
            left_out = [name for name in ("importance_clipped", *MASKED) if name in values]
            of_role = {name: float(values[name][own].double().mean()) for name in left_out}
            of_role |= _of_samples(values["importance"][own])
            found |= {f"{role}.{name}": value for name, value in of_role.items()}
        found |= {name: fmean(numbers) for name, numbers in self._of_updates.items()}
        return found | {
            "ratio_max": float(values["ratio"].max()),
            "tokens": float(len(self.turns)),
            "rows": float(self.rows),
        }


def _of_samples(importance_J: Tensor) -> Metrics:
    found = importance_statistics(importance_J)
    return {"importance_max": found.largest, "ess": found.ess}
