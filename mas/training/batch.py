"""A step's turns as learner rows. Free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mas.core.records import Group, Turn
from mas.training.losses.aggregation import Aggregation, token_weights


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
