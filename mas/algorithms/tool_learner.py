"""Small LLMs Are Weak Tool Learners, arXiv 2401.07324: one backbone imitates what is good of all roles, then each
role goes on with a copy of it. Our reading: good are answers above the mean of their siblings."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ToolLearnerOptions(Options):
    """`fork_after`: so many steps all roles learn through one adapter, then each through a copy of it. `threshold`:
    what is paid more is imitated; None: more than the mean of its siblings."""

    fork_after: int = 8
    threshold: float | None = None


algorithm = Algorithm(
    recipe=Recipe(
        title="Small LLMs Are Weak Tool Learners",
        paper="2401.07324",
        does=("One backbone learns from all roles; planner, caller and summariser then go on with copies of it."),
        differs=(
            "imitates the team's own better answers instead of recorded ones; 8 steps before the fork are ours; the "
            "optimiser's state is copied, too"
        ),
        scenario="tool_use",
    ),
    parts={
        "sampler": {"mode": "tree"},
        "update": "preference",
        "preference": {"value": "reward", "dpo": 0.0},
    },
    options=ToolLearnerOptions,
    places={"fork_after": "fork.after", "threshold": "preference.threshold"},
)
