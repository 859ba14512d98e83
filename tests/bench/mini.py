"""The smallest learner workload."""

from typing import Any

from benchmarks.learner.workload import WorkloadOptions

MINI: dict[str, Any] = {
    "name": "mini",
    "shape": {
        "hidden": 16,
        "intermediate": 32,
        "layers": 2,
        "heads": 2,
        "kv_heads": 1,
        "head_size": 8,
        "vocabulary": 32,
        "spread": 0.2,
    },
    "lora": {"rank": 2, "alpha": 4},
    "roles": 2,
    "groups": 2,
    "candidates": 4,
    "rows_per_forward": 4,
    "prompt_tokens": [3, 6],
    "completion_tokens": [2, 9],
    "peft_packed_tokens": 30,
}


def mini(**changed: Any) -> WorkloadOptions:
    """The smallest workload, changed."""
    return WorkloadOptions.model_validate(MINI | changed)
