"""Retroformer, arXiv 2308.02151: only the reflector is trained, by how much better the next attempt of the frozen
actor is than the one before."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Retroformer",
        paper="2308.02151",
        does="A trained reflector between two attempts of a frozen actor, paid what the second is better.",
        differs="compared with the other reflections on the task instead of PPO; the actor is the same base",
        scenario="refine",
    ),
    parts={
        "roles": ["reflector"],
        "sampler": {"mode": "parallel", "attempts": {"guide": "reflector"}},
        "reward": {"of": "improvement"},
    },
    options=NoOptions,
)
