"""DAPO, arXiv 2503.14476: a higher upper bound, tokens weigh equally, tasks that teach nothing are replaced."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class LengthSettings(Options):
    """A completion loses reward as it comes nearer than `margin` tokens to `most`, and 1 beyond it."""

    most: int
    margin: int


class DapoOptions(Options):
    """`refill`: a task none of whose groups has anything to teach is replaced, so many times a step. `length`: what
    over-long answers lose; None: nothing."""

    refill: int = 2
    length: LengthSettings | None = None


algorithm = Algorithm(
    recipe=Recipe(
        title="DAPO",
        paper="2503.14476",
        does=("A higher upper bound, all tokens weigh the same, tasks without anything to teach are replaced."),
        differs="tasks are replaced at most twice a step; the over-long penalty is off: its option length has it",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "loss": {"clip_high": 0.28, "aggregation": "token_mean", "entropy": 0.0},
    },
    options=DapoOptions,
    places={"refill": "sampler.refill", "length": "reward.length"},
)
