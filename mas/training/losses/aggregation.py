"""How token losses become one number, independent of how rows are split into micro-batches. Free of torch."""

from collections import Counter
from collections.abc import Hashable, Sequence

from mas.config.updates import Aggregation as Aggregation


def token_weights(
    lengths: Sequence[int],
    aggregation: Aggregation,
    max_length: int,
    trajectories: Sequence[Hashable] = (),
    episodes: Sequence[Hashable] = (),
) -> list[float]:
    """The weight of every token of each row, such that the batch's loss is the weighted sum of all token losses.

    token_mean: 1 / all tokens; seq_mean_token_mean: 1 / (N |y|); seq_mean_token_sum: 1 / N;
    seq_mean_token_sum_norm: 1 / (N max_length) (Dr.GRPO, arXiv 2503.20783, section 3);
    trajectory_mean: 1 / (trajectories x rows of its own x |y|): trajectories weigh equally, then their turns, then
    tokens (Flow-GRPO, arXiv 2510.05592, equation 5); episode_mean: 1 / (episodes |y|): every row weighs as much as an
    episode's first, however many there are (MATPO, arXiv 2510.04678: rows / main rollouts x the mean over rows).

    Args:
        lengths: trained tokens of each of the N rows, at least 1 each.
        trajectories, episodes: of each row; only read by the aggregation of that name.
    """
    rows = len(lengths)
    match aggregation:
        case "token_mean":
            return [1 / sum(lengths)] * rows
        case "seq_mean_token_mean":
            return [1 / (rows * length) for length in lengths]
        case "seq_mean_token_sum":
            return [1 / rows] * rows
        case "seq_mean_token_sum_norm":
            return [1 / (rows * max_length)] * rows
        case "trajectory_mean":
            own = Counter(trajectories)
            pairs = zip(trajectories, lengths, strict=True)
            return [1 / (len(own) * own[trajectory] * length) for trajectory, length in pairs]
        case "episode_mean":
            count = len(set(episodes))
            return [1 / (count * length) for _, length in zip(episodes, lengths, strict=True)]
