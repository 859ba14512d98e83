"""ARPO for GUI agents, arXiv 2505.16282: where all episodes of a task fail, one is replaced by an earlier success of
it. Its ratio is that to the policy of its time (importance_cap null). Tasks must come again:
train.tasks.source=epochs."""

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class ArpoOptions(Options):
    """`kept`: so many successes of every task are kept, the newest."""

    kept: int = 4


algorithm = Algorithm(
    recipe=Recipe(
        title="ARPO (GUI agents)",
        paper="2505.16282",
        does=("Where all episodes of a task fail, one gives its place to an earlier success of the same task."),
        differs=(
            "text worlds instead of screens; the tasks to leave out are found in the first epochs of the run, not "
            "before it; how many successes are kept, and which gives way, is our reading"
        ),
        needs="tasks that come again",
        beside="train.tasks.source=epochs train.tasks.count=64",
    ),
    parts={"sampler": {"mode": "parallel"}, "loss": {"importance_cap": None}},
    options=ArpoOptions,
    places={"kept": "sampler.replay.size"},
)
