"""Training-Free GRPO, arXiv 2510.08191: whole episodes are compared, and an editor writes down what the better ones
did."""

from typing import Literal

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class TrainingFreeOptions(Options):
    """`editor`: `base` asks the run's own base LLM, any other name the peer of that name; `quote` asks no model and
    copies the role's answers of a better episode. `score`: whether an episode was solved, or the role's reward.
    `sees`: an editor is shown the role's `own` turns alone, or those of the whole `team`.
    `most` experiences of `characters` each are in a library, `per_group` of one group at most. `max_tokens`,
    `temperature`: of each of the editor's answers."""

    editor: str = "base"
    score: Literal["success", "reward"] = "success"
    sees: Literal["own", "team"] = "own"
    most: int = 32
    characters: int = 400
    per_group: int = 2
    max_tokens: int = 1024
    temperature: float = 0.0


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
    options=TrainingFreeOptions,
    places={name: f"experience.{name}" for name in TrainingFreeOptions.model_fields},
)
