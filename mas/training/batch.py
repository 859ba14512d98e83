"""A step's turns as learner rows, and the weights with which their token losses become one number. Free of torch.

The weights do not depend on how rows are split into micro-batches.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from mas.config.updates import Aggregation, LossOptions
from mas.core.records import Group, Turn


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One turn with what its loss needs.

    `advantage` is that of all its tokens, unless `advantages` has one for each of them (empty: it has none). `weight`
    is that of each of its tokens in the adapter's loss. `reference` are the base's log-probabilities of its tokens
    where they are known, else empty. `usual` is the entropy in nats that its tokens used to have, and `smoothing` what
    a nat out of the band around it costs, in units of the entropy's coefficient.
    """

    turn: Turn
    adapter: str
    advantage: float
    weight: float
    reference: Sequence[float] = ()
    advantages: Sequence[float] = ()
    usual: float = 0.0
    smoothing: float = 0.0


def group_of(row: TrainRow) -> Group:
    """Rows that are compared with each other have this in common; a trajectory lies in one group."""
    return row.turn.group


def trajectory_of(row: TrainRow) -> tuple[str, Group, str]:
    """Rows of one trajectory have this in common."""
    return row.adapter, row.turn.group, row.turn.trajectory


def place_of(turn: Turn) -> tuple[int, int]:
    """Where a turn stands among those of its agent in one episode."""
    return turn.turn, turn.visit


def train_rows(
    turns: Sequence[Turn],
    advantages: Sequence[float],
    adapter_of: Mapping[str, str],
    *,
    aggregation: Aggregation,
    max_length: int,
) -> list[TrainRow]:
    """Rows of all turns whose role has a trainable adapter (`adapter_of`: role -> adapter), in order."""
    pairs = zip(turns, advantages, strict=True)
    rows = [TrainRow(turn, adapter_of[turn.role], value, 0.0) for turn, value in pairs if turn.role in adapter_of]
    return weighted(rows, aggregation=aggregation, max_length=max_length)


def weighted(rows: Sequence[TrainRow], *, aggregation: Aggregation, max_length: int) -> list[TrainRow]:
    """The rows as one batch per adapter: weights as `token_weights` gives them, adapters one after the other."""
    batch: list[TrainRow] = []
    for adapter in dict.fromkeys(row.adapter for row in rows):
        own = [row for row in rows if row.adapter == adapter]
        weights = token_weights(
            [len(row.turn.completion_ids) for row in own],
            aggregation,
            max_length,
            [trajectory_of(row) for row in own],
            [row.turn.episode for row in own],
        )
        batch += [replace(row, weight=weight) for row, weight in zip(own, weights, strict=True)]
    return batch


def split_minibatches(rows: Sequence[TrainRow], count: int, loss: LossOptions) -> list[list[TrainRow]]:
    """Every n-th group of each adapter, weighted as a batch of its own; where there are not n groups, every n-th row
    (ratio=sequence: trajectory). `count`: n."""
    if count == 1:
        return [list(rows)]
    groups: dict[str, set[Group]] = defaultdict(set)
    for row in rows:
        groups[row.adapter].add(group_of(row))
    seen: dict[str, dict[object, int]] = defaultdict(dict)
    parts: list[list[TrainRow]] = [[] for _ in range(count)]
    for row in rows:
        units = seen[row.adapter]
        unit: object = trajectory_of(row) if loss.ratio == "sequence" else len(units)
        if len(groups[row.adapter]) >= count:
            unit = group_of(row)
        parts[units.setdefault(unit, len(units)) % count].append(row)
    return [weighted(part, aggregation=loss.aggregation, max_length=loss.max_length) for part in parts if part]


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
