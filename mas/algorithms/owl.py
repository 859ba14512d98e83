"""OWL, arXiv 2505.23885: only the planner is trained, by the better and worse of its own plans; workers are plugged
in."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import PREFERENCE, PreferenceSettings

algorithm = Algorithm(
    recipe=Recipe(
        title="OWL (Optimized Workforce Learning)",
        paper="2505.23885",
        does=(
            "Only the planner is trained, by the better and worse of its own; a coordinator assigns calls to workers."
        ),
        differs=(
            "on-policy pairs in every step, labelled by the reward; no supervised stage before it; coordinator and "
            "workers are frozen"
        ),
        scenario="subagents",
    ),
    parts={
        "team": "workforce",
        "roles": ["planner"],
        "sampler": {"mode": "tree", "lookahead": "episode"},
        "update": "preference",
        "preference": {"value": "reward"},
        "reward": {"failure": 0.0},
    },
    options=PreferenceSettings,
    places=PREFERENCE,
)
