"""MLPO, How to Train a Leader, arXiv 2507.08960: only the leader is trained, on tasks that its peers do not solve
anyway."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class MlpoOptions(Options):
    """`solved`: a task is left out where at least this share of its peers' answers is right, and `term` says of each
    whether it is."""

    solved: float = 0.75
    term: str = "answer"


algorithm = Algorithm(
    recipe=Recipe(
        title="MLPO (How to Train a Leader)",
        paper="2507.08960",
        does=(
            "A leader that hears frozen peers is trained on tasks that these do not solve anyway, by the mean alone."
        ),
        differs=(
            "one round of proposals, drawn anew for each task; no supervised stage before it; max_length 8 tokens"
        ),
        scenario="refine",
    ),
    parts={
        "team": "led",
        "roles": ["leader"],
        "sampler": {"continuations": 1, "filter": {"by": "solved"}},
        "advantage": {"scale": "none"},
        "loss": {"aggregation": "seq_mean_token_sum_norm", "max_length": 8},
    },
    options=MlpoOptions,
    places={"solved": "sampler.filter.share", "term": "sampler.filter.term"},
)
