"""Stratified GRPO, arXiv 2510.06214: trajectories are compared with those of episodes with as many searches."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class StratifiedOptions(Options):
    """`by`: compared with trajectories of episodes with as many tool `calls`, or with those of as many `turns`, or
    `failures` to parse, by the share `blend`; with all by the rest."""

    by: Literal["calls", "turns", "failures"] = "calls"
    blend: float = 0.8


algorithm = Algorithm(
    recipe=Recipe(
        title="Stratified GRPO",
        paper="2510.06214",
        does=("Trajectories are compared with those of episodes with as many searches, blended with all of the group."),
        differs="the share of the blend (0.8) is ours, the paper's was not seen; a search is any member's",
        scenario="retrieval",
        needs="several turns and tools",
    ),
    parts={"sampler": {"mode": "parallel"}},
    options=StratifiedOptions,
    places={"by": "advantage.strata.by", "blend": "advantage.strata.blend"},
)
