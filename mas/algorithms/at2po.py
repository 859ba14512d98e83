"""AT2PO, arXiv 2601.04767: chains, then rounds that draw the most uncertain turns again; values backed up through
the tree, turn ratios with GSPO's kind of bounds. Half of the paper's 10 chains, 6 turns a round and 22 ends."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class At2poOptions(Options):
    """`chains`: whole episodes that a tree begins with. `expand`: so many turns of the greatest entropy are drawn again
    in a round, less `branch_penalty` for each sibling; of their first `branch_tokens`, None: of all.
    `backup`: a turn's value from those below it, by softmax of their entropies, their mean, or the mean of all ends.
    `form`: the value itself, less that of the turn before, less that of the root, or the sum of these differences."""

    chains: int = 5
    expand: int = 3
    branch_penalty: float = 0.05
    branch_tokens: int | None = None
    backup: Literal["child_softmax", "child_mean", "leaf_mean"] = "child_softmax"
    form: Literal["node_value", "diff_parent", "diff_global", "diff_localglobal"] = "node_value"


algorithm = Algorithm(
    recipe=Recipe(
        title="AT2PO",
        paper="2601.04767",
        does="The most uncertain turns of a tree are drawn again, and values are backed up from its ends.",
        differs=("shared turns are trained once, not once per end; rows of turns weigh equally; 11 ends, not 22"),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "entropy_tree", "candidates": 11, "branch": {"by": "rank"}},
        "advantage": {"scale": "std"},
        "loss": {"ratio": "turn", "clip_low": 0.003, "clip_high": 0.004, "dual_clip": None, "entropy": 0.0},
    },
    options=At2poOptions,
    places={
        "chains": "sampler.branch.chains",
        "expand": "sampler.branch.expand",
        "branch_penalty": "sampler.branch.penalty",
        "branch_tokens": "sampler.branch.tokens",
        "backup": "advantage.tree.backup",
        "form": "advantage.tree.form",
    },
)
