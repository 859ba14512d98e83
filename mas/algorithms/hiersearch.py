"""HierSearch, arXiv 2508.08088: the search agents learn first, by what they find, then the planner over them."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

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
        "stages": [
            {"roles": ["local", "web"], "steps": 8, "weights": {"right": 0.0}},
            {"roles": ["planner"], "steps": 100, "weights": {"found": 0.0}},
        ],
    },
    options=NoOptions,
)
