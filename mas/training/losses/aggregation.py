"""How token losses become one number, independent of how rows are split into micro-batches. Free of torch."""

from collections.abc import Sequence
from typing import Literal

Aggregation = Literal["token_mean", "seq_mean_token_mean", "seq_mean_token_sum", "seq_mean_token_sum_norm"]


def token_weights(lengths: Sequence[int], aggregation: Aggregation, max_length: int) -> list[float]:
    """The weight of every token of each row, such that the batch's loss is the weighted sum of all token losses.

    token_mean: 1 / all tokens; seq_mean_token_mean: 1 / (N |y|); seq_mean_token_sum: 1 / N;
    seq_mean_token_sum_norm: 1 / (N max_length) (Dr.GRPO, arXiv 2503.20783, section 3).

    Args:
        lengths: trained tokens of each of the N rows, at least 1 each.
    """
    rows = len(lengths)
    if aggregation == "token_mean":
        return [1 / sum(lengths)] * rows
    if aggregation == "seq_mean_token_mean":
        return [1 / (rows * length) for length in lengths]
    if aggregation == "seq_mean_token_sum":
        return [1 / rows] * rows
    return [1 / (rows * max_length)] * rows
