"""RAE of SPIRAL, arXiv 2506.24119: each role's running mean reward is its baseline, read before it learns of the
reward."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class RaeOptions(Options):
    """`decay`: how slowly a role's running mean forgets."""

    decay: float = 0.95


algorithm = Algorithm(
    recipe=Recipe(
        title="RAE (SPIRAL)",
        paper="2506.24119",
        does="The baseline is each role's running mean reward, read before it learns of the reward.",
        differs="alone, for any team with an adapter per role; `spiral` is the self-play",
    ),
    parts={"sampler": {"mode": "parallel"}, "advantage": {"key": "role", "baseline": "running", "scale": "none"}},
    options=RaeOptions,
    places={"decay": "advantage.decay"},
)
