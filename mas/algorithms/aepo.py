"""AEPO, arXiv 2510.14545: a budget shared between whole episodes and branches by entropy; uncertain tokens count
more, and good ones keep their gradient above the upper bound."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class AepoOptions(Options):
    """`branch_penalty`, `branch_weight`: a turn is drawn again where (u + weight x (its entropy - that of the first
    turn)) x (1 - penalty x branches right before it) is at least 0.5, u uniform. `branch_tokens`: the entropy is that
    of so many first tokens; None: of all. `entropy_weight`: of a token's entropy in its advantage."""

    branch_penalty: float = 0.05
    branch_weight: float = 0.2
    branch_tokens: int | None = 50
    entropy_weight: float = 0.2


algorithm = Algorithm(
    recipe=Recipe(
        title="AEPO",
        paper="2510.14545",
        does="Whole episodes and branches at uncertain turns share a budget; uncertain tokens count more.",
        differs=(
            "shared turns are trained once, by the mean of their ends; entropies of drawn tokens, in nats; 8 ends"
        ),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "entropy_tree", "branch": {"by": "chance"}},
        "advantage": {"scale": "std", "tree": {"backup": "leaf_mean"}},
        "loss": {"surrogate": "keep_gradient", "dual_clip": 3.0, "entropy": 0.0},
    },
    options=AepoOptions,
    places={
        "branch_penalty": "sampler.branch.penalty",
        "branch_weight": "sampler.branch.weight",
        "branch_tokens": "sampler.branch.tokens",
        "entropy_weight": "advantage.entropy_weight",
    },
)
