"""EMPG, arXiv 2509.09265: turns of low entropy count more, and those that lead to one get a bonus."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="EMPG",
        paper="2509.09265",
        does="Advantages of confident turns are larger, and turns that lead to one get a bonus.",
        differs=("its constants are ours, the exponential form of the bonus is our reading; entropies within a role"),
        needs="several turns",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"uncertainty": {"scale": 1.0, "clarity": 0.05}}},
    options=NoOptions,
)
