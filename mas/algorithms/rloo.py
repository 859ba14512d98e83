"""RLOO, arXiv 2402.14740: whole episodes, each compared with the mean of the others."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="RLOO",
        paper="2402.14740",
        does="Each episode is compared with the mean of the others.",
        differs="the surrogate keeps PPO's clip; on policy it has the gradient of the plain one",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"baseline": "leave_one_out", "scale": "none"}},
    options=NoOptions,
)
