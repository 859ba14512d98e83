"""Search Self-Play, arXiv 2510.18821: a proposer is paid for questions that are hard to solve, its raw reward being
its advantage; five attempts at one question are compared with each other. A refused proposal is paid 0."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ProposerSettings(Options):
    """What a `role` that poses tasks earns by p, the mean outcome (the team's `term`) of the others' attempts:
    `failure`: 1 - p. `intermediate`: 4 (`left` + p)(`right` - p) for 0 < p < 1, else 0. `invalid`: where nobody
    attempted its task."""

    role: str = "proposer"
    term: str = "right"
    mode: Literal["failure", "intermediate"] = "failure"
    left: float = 0.0
    right: float = 1.0
    invalid: float = 0.0


class SearchSelfPlayOptions(Options):
    """`proposer`: what who poses tasks earns; None: nothing by how the others fare."""

    proposer: ProposerSettings | None = ProposerSettings()


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
        "reward": {"failure": 0, "weights": {"accepted": 0}},
        "advantage": {"key": "episode", "single": "raw"},
        "loss": {"clip_high": 0.285, "kl": 0.01},
    },
    options=SearchSelfPlayOptions,
    places={"proposer": "reward.proposer"},
)
