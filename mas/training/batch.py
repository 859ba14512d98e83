"""A step's turns as learner rows, and rows as micro-batches. Free of torch.

Rows that read the same input (same adapter, prompt and completion but its last token) share one forward row: the K
candidates of a group that differ only in their last token cost one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from mas.core.records import Turn
from mas.training.losses.aggregation import Aggregation, token_weights


@dataclass(frozen=True, slots=True)
class TrainRow:
    """One turn with what its loss needs. `weight` is that of each of its tokens in the adapter's loss."""

    turn: Turn
    adapter: str
    advantage: float
    weight: float

    @property
    def input_key(self) -> tuple[str, tuple[int, ...], tuple[int, ...], int, float, tuple[int, ...]]:
        """Rows with equal keys have equal logits, sampling distributions and entropies."""
        turn = self.turn
        inputs, length = turn.completion_ids[:-1], len(turn.completion_ids)
        return self.adapter, turn.prompt_ids, inputs, length, turn.temperature, turn.choices


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
        weights = token_weights([len(row.turn.completion_ids) for row in own], aggregation, max_length)
        batch += [replace(row, weight=weight) for row, weight in zip(own, weights, strict=True)]
    return batch


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Loss rows and the distinct inputs that they read: `index[n]` is the input of `rows[n]`."""

    rows: tuple[TrainRow, ...]
    inputs: tuple[TrainRow, ...]
    index: tuple[int, ...]


def micro_batches(rows: Sequence[TrainRow], budget: int) -> Iterator[MicroBatch]:
    """Split rows so that padded inputs of one micro-batch stay within `budget` tokens (one input at least).

    Inputs of like length go together, whatever their adapter, and are sorted by adapter inside the micro-batch.
    """
    members: dict[tuple[object, ...], list[TrainRow]] = {}
    for row in rows:
        members.setdefault(row.input_key, []).append(row)
    groups = sorted(members.values(), key=lambda group: _width(group[0]))
    pack: list[list[TrainRow]] = []
    for group in groups:
        if pack and (len(pack) + 1) * _width(group[0]) > budget:
            yield _micro_batch(pack)
            pack = []
        pack.append(group)
    if pack:
        yield _micro_batch(pack)


def _width(row: TrainRow) -> int:
    return len(row.turn.prompt_ids) + len(row.turn.completion_ids) - 1


def _micro_batch(pack: list[list[TrainRow]]) -> MicroBatch:
    pack = sorted(pack, key=lambda group: group[0].adapter)
    pairs = [(row, index) for index, group in enumerate(pack) for row in group]
    return MicroBatch(
        rows=tuple(row for row, _ in pairs),
        inputs=tuple(group[0] for group in pack),
        index=tuple(index for _, index in pairs),
    )
