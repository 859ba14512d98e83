"""Pass@k, arXiv 2503.19595, as verl computes it: only the best of a group learns, by what it is above the second."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Pass@k (inference-time objectives)",
        paper="2503.19595",
        does="Only the best of a group learns, by what it is above the second best.",
        differs="as verl computes it, by the group's standard deviation",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"baseline": "best"}},
    options=NoOptions,
)
