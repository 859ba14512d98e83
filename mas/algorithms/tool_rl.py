"""ToolRL, arXiv 2504.13958: GRPO on the parts of a tool call that are right, paid to whoever writes the call."""

from mas.algorithms.base import Algorithm, NoOptions, Recipe

algorithm = Algorithm(
    recipe=Recipe(
        title="ToolRL",
        paper="2504.13958",
        does="GRPO on the parts of a tool call: form, tool names, argument names, values.",
        differs=(
            "the caller is one of three roles, the others are paid for form alone; its constant of -3 is left out"
        ),
        scenario="tool_use",
    ),
    parts={"sampler": {"mode": "parallel"}, "reward": {"alpha": 0.0}},
    options=NoOptions,
)
