"""All kinds of reward terms at once, for GRPO (arXiv 2402.03300): what the scenario pays the team and single roles,
failures to parse, a learned model, the tokens of each turn, and a judge whose answers may come a step late."""

from pydantic import Field

from mas.algorithms.base import Algorithm, Recipe
from mas.core.options import Options


class RewardStackOptions(Options):
    """`judge`: `pattern`, `base`, a peer or one of an installed package pays the `terms` (name -> what it counts as
    where no answer comes), by the regular expression or question that `asks` has for each. A step waits `wait_s`
    seconds, and a group with missing answers `late_steps` further steps. `reward_lr`, `reward_epochs`: how the learned
    model learns."""

    judge: str = "pattern"
    asks: dict[str, str] = Field(default={"verbose": "^.{41}"})
    terms: dict[str, float] = Field(default={"verbose": 0.0})
    wait_s: float = 30.0
    late_steps: int = 1
    reward_lr: float = 3e-3
    reward_epochs: int = 4


algorithm = Algorithm(
    recipe=Recipe(
        title="Reward stack (GRPO)",
        paper="2402.03300",
        does=("All kinds of reward terms at once: team, role, form, learned, cost, and a judge that may answer late."),
        differs=("GRPO with terms of ours beside the outcome; the judge is a pattern unless another one is named"),
        scenario="plan_path",
        needs="several turns",
    ),
    parts={
        "sampler": {"mode": "parallel"},
        "reward": {
            "weights": {"model": 0.1, "cost_tokens": 0.1, "verbose": -0.1},
            "model": {"kind": "progress", "joins": "added"},
            "cost": ["tokens"],
        },
    },
    options=RewardStackOptions,
    places={
        "judge": "reward.late.judge",
        "asks": "reward.late.asks",
        "terms": "reward.late.terms",
        "wait_s": "reward.late.wait_s",
        "late_steps": "reward.late.steps",
        "reward_lr": "reward.model.lr",
        "reward_epochs": "reward.model.epochs",
    },
)
