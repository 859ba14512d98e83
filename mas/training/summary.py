"""A step's numbers, per team and per role. Free of torch."""

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev
from typing import Any

from mas.config.options import RewardOptions
from mas.core.environment import mean_measures
from mas.core.records import Episode, Turn
from mas.training.advantages.group import group_statistics
from mas.training.rewards import total_reward
from mas.training.updates.update import UpdateResult
from mas.training.zero_variance import flat_share


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
