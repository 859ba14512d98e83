"""Self-RedTeam, arXiv 2506.07468: one policy attacks and defends; REINFORCE++ with rewards normalised per role."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Self-RedTeam",
        paper="2506.07468",
        does=("One policy attacks and defends: it rewrites harmful and benign prompts, and refuses or answers them."),
        differs=(
            "no supervised data mixed in; both seats learn in every step; a rule judge; zero-sum rewards are our "
            "reading; an attack that asks for nothing is paid the least"
        ),
        scenario="red_team",
    ),
    parts={
        "policy": "shared",
        "sampler": {"mode": "parallel"},
        "reward": {"failure": 0},
        "advantage": {"key": "role"},
        "loss": {"kl": 0.01, "kl_in": "reward"},
    },
    options=NoOptions,
)
