"""From recorded turns to one advantage each."""

from collections.abc import Sequence

from mas.config.options import AdvantageOptions, RewardOptions
from mas.core.records import Turn
from mas.training.advantages.group import group_advantages
from mas.training.rewards import total_reward


def turn_advantages(turns: Sequence[Turn], rewards: RewardOptions, options: AdvantageOptions) -> list[float]:
    """One advantage per turn, compared inside its group.

    Turns of one trajectory in one group (parallel sampling: all turns of one agent in one episode) hold the same
    reward; it enters the group's statistics once, and its advantage is given to each of them.
    """
    rows: dict[tuple[str, str], float] = {}
    for turn in turns:
        rows.setdefault((turn.group, turn.trajectory), total_reward(turn.rewards, rewards))
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
