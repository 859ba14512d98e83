"""The key-value cache of a running batch: rows come and go while the others are decoded.

All rows write into one column at a time and end there; a row that came later begins further right. So one step feeds
every row without looking at its length, a row that leaves costs nothing more (the last row takes its place), and what
is left of the oldest row is not read. Every place is as wide as the longest row: the caller that adds rows bounds that.

Shape legend: S places, H key-value heads, W columns, D head size, N rows in use, P padded prompt length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer

from mas.core.errors import ModelError

_KINDS = ("full_attention", "sliding_attention", DynamicLayer.__name__, DynamicSlidingWindowLayer.__name__)
_SPARE = 64
"""Columns behind the one written next, at least, when the buffers are made anew."""


@dataclass(frozen=True, slots=True)
class Attention:
    """How far back a model's layers look. `spans`: kind of layer -> tokens, None: to the beginning."""

    spans: Mapping[str, int | None]

    @classmethod
    def of(cls, model: PreTrainedModel) -> "Attention":
        """Read it off a model.

        Raises:
            ModelError: the model keeps more than keys and values, so that rows cannot come and go.
        """
        config = model.config.get_text_config()
        kinds = getattr(config, "layer_types", None) or []
        for kind in (*kinds, *(type(layer).__name__ for layer in DynamicCache(config=config).layers)):
            if kind not in _KINDS:
                raise ModelError(
                    f"engine=transformers decodes layers of full and sliding attention, this {config.model_type!r} "
                    f"model has {kind}; use engine=vllm"
                )
        span = getattr(config, "sliding_window", None)
        kinds = kinds or ["sliding_attention" if span else "full_attention"]
        return cls({kind: span if kind == "sliding_attention" else None for kind in dict.fromkeys(kinds)})


@dataclass(slots=True)
class _Window:
    """What of the buffers is in use: `rows` from the top, columns `first` to `column`, where the next token goes."""

    rows: int = 0
    first: int = 0
    column: int = 0
    starts: list[int] = field(default_factory=list)


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # transformers annotates in part
    """One attention layer's keys and values [S, H, W, D]."""

    is_sliding = False

    def __init__(self, window: _Window) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.window = window
        self.buffers: list[Tensor] = []

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to prepare: rows are added before they are decoded."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write one token per row; returns the columns in use with it."""
        window = self.window
        rows, seen = slice(window.rows), slice(window.first, window.column + 1)
        keys, values = self.buffers
        keys[rows, :, window.column] = key_states[:, :, 0]
        values[rows, :, window.column] = value_states[:, :, 0]
        return keys[rows, :, seen], values[rows, :, seen]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        return self.window.column - self.window.first

    def get_max_length(self) -> int:
        return -1


class SlotCache(Cache):
    """The cache of a batch that is decoded one token a row at a time."""

    def __init__(self, layers: int) -> None:
        self.window = _Window()
        self._slots = [SlotLayer(self.window) for _ in range(layers)]
        super().__init__(layers=[*self._slots])

    def add(
        self, prefilled: Sequence[tuple[Tensor, Tensor]], rows: Sequence[int], lengths: Sequence[int], more: int = 0
    ) -> None:
        """New rows behind those there.

        Args:
            prefilled: keys and values of each layer [U, H, P, D], the prompts at their right ends.
            rows: for each new row which of the U prompts it continues; `lengths`: that prompt's tokens.
            more: rows that are added next; there is a place for each of them then.
        """
        window, width = self.window, prefilled[0][0].shape[2]
        self._reserve(prefilled, len(rows) + more, width)
        index = torch.tensor(rows, device=prefilled[0][0].device)
        new, columns = slice(window.rows, window.rows + len(rows)), slice(window.column - width, window.column)
        for slot, filled in zip(self._slots, prefilled, strict=True):
            for buffer, states in zip(slot.buffers, filled, strict=True):
                buffer[new, :, columns] = states[index]
        window.rows += len(rows)
        window.starts += [window.column - length for length in lengths]
        window.first = min(window.starts)

    def keep(self, rows: Sequence[int]) -> list[int]:
        """Drop all other rows; returns which former row is at each place now. The last rows fill the places left."""
        window, count = self.window, len(rows)
        staying = set(rows)
        free = [row for row in range(count) if row not in staying]
        last = [row for row in rows if row >= count]
        columns = slice(window.first, window.column)
        for buffer in (buffer for slot in self._slots for buffer in slot.buffers if free):
            buffer[free, :, columns] = buffer[last, :, columns]
        moved = dict(zip(free, last, strict=True))
        order = [moved.get(row, row) for row in range(count)]
        window.rows = count
        window.starts = [window.starts[row] for row in order]
        window.first = min(window.starts, default=window.column)
        return order

    def wipe(self, rows: Sequence[int]) -> None:
        """Set what these rows wrote to zero: NaN would reach a later row at their place through its mask."""
        for slot in self._slots:
            for buffer in slot.buffers:
                buffer[list(rows)] = 0.0

    def mask(self, attention: Attention, dtype: torch.dtype, device: torch.device) -> Tensor | dict[str, Tensor]:
        """Which columns each row may read: additive masks [N, 1, 1, T], by kind of layer where a model has several."""
        window = self.window
        starts_N1 = torch.tensor(window.starts, device=device)[:, None]
        columns_T = torch.arange(window.first, window.column + 1, device=device)
        masks = {}
        for kind, span in attention.spans.items():
            hidden_NT = columns_T < starts_N1
            if span is not None:
                hidden_NT = hidden_NT | (columns_T <= window.column - span)
            zeros_NT = torch.zeros(hidden_NT.shape, dtype=dtype, device=device)
            masks[kind] = zeros_NT.masked_fill_(hidden_NT, -torch.inf)[:, None, None]
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def advance(self) -> None:
        """A token per row was written; make room for the next."""
        self.window.column += 1
        if self.window.column == self._size[1]:
            self._move(self._size[0], 0)

    @property
    def _size(self) -> tuple[int, int]:
        """Places and columns of the buffers."""
        buffers = self._slots[0].buffers
        return (buffers[0].shape[0], buffers[0].shape[2]) if buffers else (0, 0)

    def _reserve(self, prefilled: Sequence[tuple[Tensor, Tensor]], rows: int, width: int) -> None:
        """Places for so many more rows, and `width` columns left of the one written next."""
        window, (places, columns) = self.window, self._size
        if not window.rows:
            window.starts, window.first, window.column = [], width, width
        wanted = window.rows + rows
        if wanted > places or width > window.column or window.column >= columns:
            self._move(max(wanted, 2 * places) if wanted > places else places, width, prefilled)

    def _move(self, places: int, left: int, like: Sequence[Sequence[Tensor]] = ()) -> None:
        """Into new buffers, layer by layer, with `left` columns up to the one written next and spare ones behind it."""
        window = self.window
        used = window.column - window.first if window.rows else 0
        begin = max(left - used, 0)
        old = slice(window.rows), slice(None), slice(window.first, window.column)
        new = slice(window.rows), slice(None), slice(begin, begin + used)
        columns = begin + used + max(used, _SPARE)
        for number, slot in enumerate(self._slots):
            samples = slot.buffers or like[number]
            # Zeros, not whatever was there: a column that is hidden still meets a weight of 0, and 0 x NaN is NaN.
            buffers = [one.new_zeros((places, one.shape[1], columns, one.shape[3])) for one in samples]
            for buffer, former in zip(buffers, slot.buffers, strict=False):
                buffer[new] = former[old]
            slot.buffers = buffers
        window.starts = [start + begin - window.first for start in window.starts]
        window.first, window.column = begin, begin + used
