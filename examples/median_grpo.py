"""Episodes against the median of their group, which one lucky episode moves less than a mean: a template.

mas train scenario=relay algorithm=examples/median_grpo.py algorithm.options.bound=1.5 run_dir=runs/median
"""

from collections.abc import Hashable, Sequence
from statistics import median

from mas.algorithms import Algorithm, Options, Recipe, Row


class MedianOptions(Options):
    """`bound`: no advantage is further from 0."""

    bound: float = 2.0


def advantages(rows: Sequence[Row], options: MedianOptions) -> list[float]:
    """A = R - the median R of the group, between -bound and bound."""
    groups: dict[Hashable, list[float]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row.reward)
    return [max(-options.bound, min(options.bound, row.reward - median(groups[row.group]))) for row in rows]


algorithm = Algorithm(
    recipe=Recipe(title="Median GRPO", does="Each episode is compared with the median of its group."),
    parts={"sampler": {"mode": "parallel"}, "loss": {"entropy": 0.01}},
    options=MedianOptions,
    advantages=advantages,
)
