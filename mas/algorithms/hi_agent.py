"""Hi-Agent, arXiv 2510.14388: a subgoal is worth the mean of what its executions earn, compared with others of its
state."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Hi-Agent",
        paper="2510.14388",
        does=("A subgoal is worth the mean of what its sampled executions earn, compared with others of one state."),
        differs=(
            "the form of the foresight advantage is our reading; an execution is rewarded as the scenario pays it; "
            "everybody else's candidates are played out as often"
        ),
        scenario="plan_path",
    ),
    parts={"sampler": {"mode": "tree", "continuations": 2}},
    options=NoOptions,
)
