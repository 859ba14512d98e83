"""A micro-batch as tensors: what the model is fed, where its output is read, and what the loss needs of each token.

Shape legend: N rows of the model's input, T tokens in each, M = N T; R readings, P picks, J loss tokens.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from mas.core.errors import ModelError, TrainingError
from mas.core.support import WHOLE
from mas.serving.adapter_bank import AdapterBank
from mas.serving.adapter_weights import AdapterWeights, Mix, Segment, segments_of
from mas.serving.logits import IMPOSSIBLE, Head, Picks, pick
from mas.serving.packed_layout import PackedLayout
from mas.training.batch import MicroBatch, trajectory_of


@dataclass(frozen=True, slots=True)
class Scores:
    """Log-probability and entropy (nats) at every loss token."""

    logprobs_J: Tensor
    entropy_J: Tensor


class BatchTensors:
    """One micro-batch on the model's device. `row_J`, `trajectory_J`: which row and trajectory a loss token is of."""

    def __init__(self, batch: MicroBatch, device: torch.device) -> None:
        self.batch = batch
        self.device = device
        missing = [(batch.width or len(tree.ids)) - len(tree.ids) for tree in batch.trees]
        padded = list(zip(batch.trees, missing, strict=True))
        self._ids_NT = self._laid([(*tree.ids, *[0] * zeros) for tree, zeros in padded])
        self._positions_NT = self._laid([(*tree.positions, *range(zeros)) for tree, zeros in padded])
        lengths = torch.tensor([len(row.turn.completion_ids) for row in batch.rows])
        self.row_J = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(device)
        self.trajectory_J = torch.tensor(self._trajectories(), device=device).index_select(0, self.row_J)

    def _laid(self, lines: Sequence[tuple[int, ...]]) -> Tensor:
        """All in one row, or a row each where the batch is padded."""
        rows = [[*chain.from_iterable(lines)]] if self.batch.width is None else lines
        return torch.tensor(rows, device=self.device)

    @cached_property
    def layout(self) -> PackedLayout | None:
        """Which token sees which; None where every row is one sequence and only padding follows it."""
        batch = self.batch
        if batch.width is not None and all(len(tree.ids) == max(tree.positions) + 1 for tree in batch.trees):
            return None
        positions: list[int] = self._positions_NT.flatten().tolist()
        ends: list[int] = []
        for start, tree in zip(batch.starts, batch.trees, strict=True):
            stop = start + (batch.width or len(tree.ids))
            ends += [start + end for end in tree.ends]
            ends += [stop] * (stop - len(ends))
        return PackedLayout(positions, ends, self.device)

    def segments(self, adapters: Mapping[str, AdapterWeights]) -> tuple[Segment, ...]:
        """Which adapter computes which tokens; adapters that are not there leave the bare base."""
        width = self.batch.width
        return segments_of((adapters.get(tree.adapter), width or len(tree.ids)) for tree in self.batch.trees)

    def hidden(self, model: PreTrainedModel) -> Tensor:
        """The model's last hidden state at all tokens, [M, D]."""
        layout = self.layout
        if layout is not None:
            layout.prepare()
        packing: dict[str, Any] = {}
        if layout is not None:  # a mask with four dimensions is passed on as it is: transformers makes none of its own
            no_mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=self.device)
            packing = {"packing": layout, "attention_mask": no_mask}
        positions = (
            self._positions_NT if layout is not None else torch.arange(self._ids_NT.shape[1], device=self.device)
        )
        output = model.base_model(
            input_ids=self._ids_NT,
            position_ids=positions.expand_as(self._ids_NT),
            use_cache=False,
            **packing,
        )
        hidden: Tensor = output.last_hidden_state
        return hidden.flatten(0, 1)

    def scores(self, head: Head, hidden_MD: Tensor, chunk: int, *, entropy_slope: bool = False) -> Scores:
        """What the model says of every loss token; entropies look only at a turn's choices where it has any.

        `entropy_slope`: whether the entropy over the whole vocabulary has a gradient.
        """
        reading = self._reading
        hidden_RD = hidden_MD.index_select(0, reading.places_R)
        is_read = reading.chosen is None or len(reading.chosen[0]) < len(hidden_RD)
        picked = pick(head, hidden_RD, reading.picks, chunk, entropy_slope=entropy_slope and is_read)
        logprobs_J = picked.logits_P[reading.picks_J] - picked.lse_R[reading.reading_J]
        entropy_R = picked.entropy_R
        if reading.chosen is not None:
            readings_E, picks_EC, real_EC = reading.chosen
            logits_EC = picked.logits_P[picks_EC]
            real_EC = real_EC & (logits_EC > IMPOSSIBLE / 2)
            has_any_E = real_EC.any(-1)  # of a token that could not be a choice, such as an end, the entropy is 0
            legal_EC = logits_EC.masked_fill(~real_EC & has_any_E[:, None], -torch.inf).log_softmax(-1)
            entropy_E = -(legal_EC.exp() * legal_EC.masked_fill(~real_EC, 0.0)).sum(-1)
            entropy_R = entropy_R.index_copy(0, readings_E, entropy_E)
        return Scores(logprobs_J, entropy_R[reading.reading_J])

    @cached_property
    def _reading(self) -> "_Reading":
        return _Reading.of(self.batch, self.device)

    def states(self, hidden_MD: Tensor) -> Tensor:
        """The hidden state that each loss token is predicted from, [J, D]."""
        return hidden_MD.index_select(0, self._reading.places_R[self._reading.reading_J])

    def per_token(self, values: Sequence[float]) -> Tensor:
        """One number a row as one number a loss token, [J]."""
        numbers = torch.tensor(values, device=self.device)
        return numbers.index_select(0, self.row_J)

    def advantages(self) -> Tensor:
        """Of every loss token: its own where its row has them, else its turn's, [J].

        Raises:
            TrainingError: a row has another number of advantages than of tokens.
        """
        found = []
        for row in self.batch.rows:
            tokens = len(row.turn.completion_ids)
            if len(row.advantages) not in (0, tokens):
                raise TrainingError(
                    f"turn {row.turn.id!r} has {tokens} tokens but {len(row.advantages)} advantages: give each token "
                    "one, or none of them"
                )
            found.append(row.advantages or (row.advantage,) * tokens)
        return self.joined(found)

    def joined(self, values: Sequence[Sequence[float]]) -> Tensor:
        """A number a token, row by row, [J]."""
        return torch.tensor([one for row in values for one in row], device=self.device)

    def _trajectories(self) -> list[int]:
        """Every row's trajectory as a number."""
        seen: dict[Hashable, int] = {}
        return [seen.setdefault(trajectory_of(row), len(seen)) for row in self.batch.rows]

    def adapters(self) -> Iterator[tuple[str, int, slice]]:
        """Every adapter with the number of its rows and its loss tokens, which are neighbours."""
        start = rows = stop = 0
        trees = self.batch.trees
        for place, tree in enumerate(trees):
            rows += len(tree.rows)
            stop += sum(len(row.turn.completion_ids) for row in tree.rows)
            if place + 1 == len(trees) or trees[place + 1].adapter != tree.adapter:
                yield tree.adapter, rows, slice(start, stop)
                start, rows = stop, 0


@dataclass(frozen=True, slots=True)
class _Reading:
    """Where the head is read: R places, and the picks of all loss tokens and choices.

    `chosen`: readings with choices E, their picks [E, C], and which of those are no filling; None: no turn has any.
    """

    places_R: Tensor
    picks: Picks
    reading_J: Tensor
    picks_J: Tensor
    chosen: tuple[Tensor, Tensor, Tensor] | None

    @classmethod
    def of(cls, batch: MicroBatch, device: torch.device) -> "_Reading":
        """Loss tokens that read one place at one temperature among the same choices and tokens share a reading."""
        found: dict[tuple[int, float, tuple[int, ...], bytes], int] = {}
        reading_J: list[int] = []
        tokens_J: list[int] = []
        for start, tree in zip(batch.starts, batch.trees, strict=True):
            for row, reads in zip(tree.rows, tree.reads, strict=True):
                turn = row.turn
                for place, support in zip(reads, turn.supports or repeat(WHOLE, len(reads)), strict=True):
                    key = start + place, turn.temperature, turn.choices, support
                    reading_J.append(found.setdefault(key, len(found)))
                tokens_J += turn.completion_ids
        wanted = [*zip(reading_J, tokens_J, strict=True)]
        chosen = [(reading, choices) for (_, _, choices, _), reading in found.items() if choices]
        wanted += [(reading, token) for reading, choices in chosen for token in choices]
        order = sorted(range(len(wanted)), key=lambda n: wanted[n][0])
        at = [0] * len(order)
        for new, old in enumerate(order):
            at[old] = new
        starts = [0] * (len(found) + 1)
        for reading, _ in wanted:
            starts[reading + 1] += 1
        for reading in range(len(found)):
            starts[reading + 1] += starts[reading]
        picks = Picks(
            torch.tensor([heat for _, heat, _, _ in found], device=device)[:, None],
            any(heat != 1 for _, heat, _, _ in found),
            torch.tensor([wanted[n][0] for n in order], device=device),
            torch.tensor([wanted[n][1] for n in order], device=device),
            torch.tensor(_is_first([wanted[n] for n in order]), dtype=torch.float32, device=device),
            starts,
            tuple(support for *_, support in found) if any(support for *_, support in found) else (),
        )
        return cls(
            torch.tensor([place for place, *_ in found], device=device),
            picks,
            torch.tensor(reading_J, device=device),
            torch.tensor(at[: len(reading_J)], device=device),
            _chosen(chosen, at[len(reading_J) :], device),
        )


def _is_first(wanted: Sequence[tuple[int, int]]) -> list[bool]:
    """Whether a token of a reading was not wanted before in the list."""
    first: dict[tuple[int, int], int] = {}
    return [first.setdefault(one, at) == at for at, one in enumerate(wanted)]


def _chosen(
    chosen: Sequence[tuple[int, tuple[int, ...]]], at: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor, Tensor] | None:
    if not chosen:
        return None
    widest = max(len(choices) for _, choices in chosen)
    picks, real, rest = [], [], iter(at)
    for _, choices in chosen:
        own = [*islice(rest, len(choices))]
        picks.append([*own, *[own[0]] * (widest - len(own))])
        real.append([place < len(own) for place in range(widest)])
    readings = [reading for reading, _ in chosen]
    return (
        torch.tensor(readings, device=device),
        torch.tensor(picks, device=device),
        torch.tensor(real, device=device),
    )


@contextmanager
def recomputing(model: PreTrainedModel, bank: AdapterBank, *, layers: bool) -> Iterator[None]:
    """Within the block, forward and backward, decoder layers keep only their input (`layers` False: all as usual).
    Other threads do not decode meanwhile.

    Raises:
        ModelError: the model's layers cannot be computed again.
    """
    if not layers:
        yield
        return
    found = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not found:
        raise ModelError(f"{type(model).__name__} cannot compute its layers again: use learner.recompute_layers=false")
    # By hand: the model's own switch leaves a hook at its embeddings each time it is turned.
    # A GPU's backward is a thread of its own, where the layers must add what they add here.
    again: Any = partial(checkpoint, use_reentrant=False, context_fn=lambda: (nullcontext(), _Mixing(bank, bank.mix)))
    with bank.alone:
        for layer in found:
            computed: Any = partial(_recomputed, again, layer)
            layer._gradient_checkpointing_func = computed
            layer.gradient_checkpointing = True
            layer.training = True  # which transformers asks for before it computes a layer again
        try:
            yield
        finally:
            for layer in found:
                layer.gradient_checkpointing = layer.training = False


def _recomputed(again: Any, layer: nn.Module, forward: Callable[..., Any], *inputs: Any) -> Any:
    """A layer's output, computed each time as where nothing is trained: some layers have a dropout of their own."""

    def evaluated(*given: Any) -> Any:
        layer.training = False
        try:
            return forward(*given)
        finally:
            layer.training = True

    return again(evaluated, *inputs)


class _Mixing:
    """`AdapterBank.mixing` that can be entered again: a graph that is kept is computed again by each backward."""

    def __init__(self, bank: AdapterBank, mix: Mix | None) -> None:
        self._bank, self._mix = bank, mix
        self._entered: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        self._entered.append(self._bank.mixing(self._mix))
        self._entered[-1].__enter__()

    def __exit__(self, *error: Any) -> None:
        self._entered.pop().__exit__(*error)
