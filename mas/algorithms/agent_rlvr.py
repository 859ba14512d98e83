"""Agent-RLVR, arXiv 2506.11425: a failed task is attempted again with the environment's guidance in the prompt, and
what each attempt is paid is compared with others of its number."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Agent-RLVR",
        paper="2506.11425",
        does=("A failed task is attempted again with the environment's guidance in the prompt; attempts are compared."),
        differs=(
            "first attempts are trained as well as guided ones; GRPO among attempts of one number; the guidance is a "
            "rule of the environment, not a teacher's text"
        ),
        scenario="refine",
        needs="an environment that guides",
    ),
    parts={"sampler": {"mode": "parallel", "attempts": {"guide": "environment"}}, "reward": {"of": "attempt"}},
    options=NoOptions,
)
