"""SPIRAL, arXiv 2506.24119: one policy plays both seats against itself; the baseline of each role of each game is
its running mean reward, read before it learns of the reward."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class SpiralOptions(Options):
    """`decay`: how slowly a role's running mean forgets."""

    decay: float = 0.95


algorithm = Algorithm(
    recipe=Recipe(
        title="SPIRAL",
        paper="2506.24119",
        does=("One policy plays both seats against itself; each role of each game has its running mean as a baseline."),
        differs="one pass over a batch, not two; magnet and discount are keys, both off",
        scenario="two_player",
    ),
    parts={
        "policy": "shared",
        "sampler": {"mode": "parallel"},
        "reward": {"failure": 0},
        "advantage": {"key": "role", "baseline": "running", "scale": "none"},
    },
    options=SpiralOptions,
    places={"decay": "advantage.decay"},
)
