"""HierSearch, arXiv 2508.08088: the search agents learn first, by what they find, then the planner over them."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import StageSettings
from mas.core.options import Options

STAGES = (
    StageSettings(roles=("local", "web"), steps=8, weights={"right": 0.0}),
    StageSettings(roles=("planner",), steps=100, weights={"found": 0.0}),
)
"""Who trains when, and what is paid then."""


class HiersearchOptions(Options):
    """`stages`: who trains for how many steps, and what is paid then; empty: all roles, all the time."""

    stages: tuple[StageSettings, ...] = STAGES


algorithm = Algorithm(
    recipe=Recipe(
        title="HierSearch",
        paper="2508.08088",
        does=("A local and a web search agent learn first, by what they find; then the planner, behind a refiner."),
        differs=(
            "lengths of the stages are ours; search agents are asked by the untrained planner; a frozen refiner by "
            "prompt; one call at a time"
        ),
        scenario="subagents",
    ),
    parts={
        "team": "hierarchy",
        "sampler": {"mode": "parallel"},
        "reward": {"failure": 0.0},
    },
    options=HiersearchOptions,
    places={"stages": "stages"},
)
