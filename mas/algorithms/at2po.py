"""AT2PO, arXiv 2601.04767: chains, then rounds that draw the most uncertain turns again; values backed up through
the tree, turn ratios with GSPO's kind of bounds. Half of the paper's 10 chains, 6 turns a round and 22 ends."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="AT2PO",
        paper="2601.04767",
        does="The most uncertain turns of a tree are drawn again, and values are backed up from its ends.",
        differs=("shared turns are trained once, not once per end; rows of turns weigh equally; 11 ends, not 22"),
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "entropy_tree", "candidates": 11, "branch": {"by": "rank", "chains": 5, "expand": 3}},
        "advantage": {"scale": "std", "tree": {"backup": "child_softmax", "form": "node_value"}},
        "loss": {"ratio": "turn", "clip_low": 0.003, "clip_high": 0.004, "dual_clip": None, "entropy": 0.0},
    },
    options=NoOptions,
)
