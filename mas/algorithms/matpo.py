"""MATPO, arXiv 2510.04678: one model plays planner and workers; a worker has the advantage of the planner that
called it."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class MatpoOptions(Options):
    """`inherit`: the agent whose advantage all others have."""

    inherit: str = "planner"


algorithm = Algorithm(
    recipe=Recipe(
        title="MATPO",
        paper="2510.04678",
        does=(
            "One policy plays a planner that calls workers over several turns, and them; they inherit its advantage."
        ),
        differs="a worker searches once; no final summary; no entropy bonus",
        scenario="subagents",
    ),
    parts={
        "policy": "shared",
        "sampler": {"mode": "parallel"},
        "reward": {"weights": {"right": 0.9, "format": 0.1}, "failure": 0.0},
        "loss": {"entropy": 0.0, "aggregation": "episode_mean"},
    },
    options=MatpoOptions,
    places={"inherit": "advantage.inherit"},
)
