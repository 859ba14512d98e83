"""The arithmetic that a step cannot do without, whoever does it."""

from collections.abc import Sequence

from benchmarks.learner.rows import distinct_tokens
from benchmarks.learner.workload import WorkloadOptions
from mas.training.batch import TrainRow


def least_flops(workload: WorkloadOptions, rows: Sequence[TrainRow], adapter_weights: int) -> float:
    """Floating-point operations of one step: T (4 N + 6 A) + C 4 H.

    T distinct tokens, through N weights of the layers: 2 N forward and 2 N backward, as only the input's gradient is
    needed of what is frozen; through A weights of one adapter: 2 A forward and 4 A backward. C completion tokens reach
    the H weights of the head. Attention's own products, norms and anything computed twice do not count.
    """
    completions = sum(len(row.turn.completion_ids) for row in rows)
    per_token = 4 * workload.layer_weights + 6 * adapter_weights
    return distinct_tokens(rows) * per_token + completions * 4 * workload.head_weights
