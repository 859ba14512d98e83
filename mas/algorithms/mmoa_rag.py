"""MMOA-RAG, arXiv 2501.15228: one policy is rewriter, selector and answerer; PPO on the answer's F1 and their own
penalties."""

from mas.algorithms.base import Algorithm, Recipe
from mas.algorithms.settings import CRITIC, CriticSettings

algorithm = Algorithm(
    recipe=Recipe(
        title="MMOA-RAG",
        paper="2501.15228",
        does=("One policy rewrites, selects and answers; each role is paid the answer's F1 and its own penalty."),
        differs=("the team may search several times; the critic sees what the role sees; the KL coefficient is ours"),
        scenario="retrieval",
    ),
    parts={
        "policy": "shared",
        "sampler": {"mode": "parallel"},
        "reward": {"failure": 0.0, "weights": {"found": 0.0, "waste": 0.0, "empty": 0.0, "choice": 0.0}},
        "advantage": {"baseline": "critic"},
        "loss": {"kl": 0.01, "kl_in": "reward", "entropy": 0.0},
    },
    options=CriticSettings,
    places=CRITIC,
)
