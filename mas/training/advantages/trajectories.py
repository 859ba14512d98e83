"""Rows of one trajectory: compared once, and read in the order of their steps."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from mas.training.advantages.members import check_lengths, members


def once_per_trajectory(
    rewards: Sequence[float],
    keys: Sequence[Hashable],
    trajectories: Sequence[Hashable],
    estimate: Callable[[Sequence[float], Sequence[Hashable]], list[float]],
) -> list[float]:
    """Every trajectory enters the statistics of its group once, however long it is; all its rows get its advantage.

    Args:
        rewards: of N rows, equal within a trajectory. keys: their groups. trajectories: unique within a group.
        estimate: (rewards, keys) -> advantages, e.g. `group_advantages`.

    Raises:
        ValueError: lengths differ, or rows of one trajectory and group have different rewards.
    """
    check_lengths({"rewards": rewards, "group keys": keys, "trajectories": trajectories})
    rows = list(zip(keys, trajectories, strict=True))
    by_row: dict[tuple[Hashable, Hashable], float] = {}
    for row, reward in zip(rows, rewards, strict=True):
        if by_row.setdefault(row, reward) != reward:
            raise ValueError(
                f"trajectory {row[1]!r} of group {row[0]!r} has rows with rewards {by_row[row]} and {reward}: "
                "give each row the reward of the whole trajectory"
            )
    values = estimate(list(by_row.values()), [key for key, _ in by_row])
    advantages = dict(zip(by_row, values, strict=True))
    return [advantages[row] for row in rows]


def over_trajectories(
    values: Sequence[float],
    trajectories: Sequence[Hashable],
    steps: Sequence[Any],
    change: Callable[[Sequence[float]], Sequence[float]],
) -> list[float]:
    """`change`, e.g. discounting, applied to the values of every trajectory in the order of `steps`.

    Args:
        values: of N rows in any order. trajectories: of each row. steps: of each row, comparable and different
            within a trajectory.

    Raises:
        ValueError: lengths differ, or a trajectory has two rows of one step.
    """
    check_lengths({"values": values, "trajectories": trajectories, "steps": steps})
    changed = [0.0] * len(values)
    for trajectory, indices in members(trajectories).items():
        if len({steps[i] for i in indices}) < len(indices):
            raise ValueError(f"trajectory {trajectory!r} has two rows of one step: each row needs a step of its own")
        ordered = sorted(indices, key=lambda index: steps[index])
        for i, value in zip(ordered, change([values[i] for i in ordered]), strict=True):
            changed[i] = value
    return changed
