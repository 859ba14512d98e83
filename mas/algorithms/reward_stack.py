"""All kinds of reward terms at once, for GRPO (arXiv 2402.03300): what the scenario pays the team and single roles,
failures to parse, a learned model, the tokens of each turn, and a judge whose answers may come a step late."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

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
            "late": {
                "judge": "pattern",
                "asks": {"verbose": "^.{41}"},
                "terms": {"verbose": 0.0},
                "wait_s": 30,
                "steps": 1,
            },
        },
    },
    options=NoOptions,
)
