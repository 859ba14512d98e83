"""Search Self-Play, arXiv 2510.18821: a proposer is paid for questions that are hard to solve, its raw reward being
its advantage; five attempts at one question are compared with each other. A refused proposal is paid 0."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Search Self-Play",
        paper="2510.18821",
        does=(
            "One policy writes questions and attempts them: paid 1 - p for a question that a share p of five attempts"
            " solves, while these are compared with each other."
        ),
        differs=(
            "solvers read their documents and do not search; gates are rules; a refused proposal leaves its place "
            "empty, with no pool of earlier questions; one turn each"
        ),
        scenario="propose",
        needs="a role that poses tasks, and several agents of one role that attempt them",
    ),
    parts={
        "policy": "shared",
        "sampler": {"mode": "parallel", "candidates": 2},
        "reward": {"failure": 0, "weights": {"accepted": 0}, "proposer": {"mode": "failure"}},
        "advantage": {"key": "episode", "single": "raw"},
        "loss": {"clip_high": 0.285, "kl": 0.01},
    },
    options=NoOptions,
)
