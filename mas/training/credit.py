"""From recorded turns to one advantage each."""

from collections.abc import Sequence

from mas.config.options import AdvantageOptions, RewardOptions
from mas.core.errors import TrainingError
from mas.core.records import Turn
from mas.training.advantages.group import group_advantages
from mas.training.rewards import total_reward


def turn_advantages(
    turns: Sequence[Turn], rewards: RewardOptions, options: AdvantageOptions, penalties: Sequence[float] | None = None
) -> list[float]:
    """One advantage per turn, compared inside its group. `penalties`: what each turn's reward loses; None: nothing.

    Turns of one trajectory in one group (parallel sampling: all turns of one agent in one episode) hold the same
    reward; it enters the group's statistics once, less the penalties of them all, and its advantage is given to each.

    Raises:
        TrainingError: the baseline is a critic, which compares tokens; see `mas.training.updates.ppo`.
    """
    if options.baseline == "critic":
        raise TrainingError("advantage.baseline=critic compares nothing inside groups: its advantages are of tokens")
    rows: dict[tuple[str, str], float] = {}
    for turn, penalty in zip(turns, penalties or [0.0] * len(turns), strict=True):
        key = turn.group, turn.trajectory
        rows[key] = rows.get(key, total_reward(turn.rewards, rewards)) - penalty
    keys = list(rows)
    values = group_advantages(
        list(rows.values()),
        [group for group, _ in keys],
        baseline=options.baseline,
        scale=options.scale,
        single=options.single,
    )
    by_row = dict(zip(keys, values, strict=True))
    return [by_row[turn.group, turn.trajectory] for turn in turns]
