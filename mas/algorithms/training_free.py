"""Training-Free GRPO, arXiv 2510.08191: whole episodes are compared, and an editor writes down what the better ones
did."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="Training-Free GRPO",
        paper="2510.08191",
        does=(
            "No weight changes: an editor writes down what better episodes did otherwise, a library of text per role."
        ),
        differs=(
            "a library per role, which the editor fills from what that role saw; a batch of one group is not "
            "consolidated; roles sample at their own temperature"
        ),
        needs="prompts in sentences, and a model that reads them",
        beside="model=smollm2 scenario=shop",
    ),
    parts={"update": "training_free", "sampler": {"mode": "parallel", "candidates": 5}},
    options=NoOptions,
)
