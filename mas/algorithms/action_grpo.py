"""z of episodes, and half of what each action was paid by itself. Not HRPO of MasHost, which builds a graph."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ActionOptions(Options):
    """`step_weight`: of the term that each turn has by itself, beside its trajectory's."""

    step_weight: float = 0.5


algorithm = Algorithm(
    recipe=Recipe(
        title="Action GRPO",
        does="Beside the comparison of episodes, each action has what it was paid by itself.",
        differs="HRPO of MasHost (arXiv 2506.08507) also builds the team's graph, which this does not",
        scenario="plan_path",
        needs="several turns",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"step": {"value": "own", "key": "none"}}},
    options=ActionOptions,
    places={"step_weight": "advantage.step.weight"},
)
