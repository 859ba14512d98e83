"""The learner: one resident base, every role's adapter in the same forward and backward, one AdamW per adapter.

Each step asserts what role adapters need to train at all: an adapter with tokens gets a gradient, every other none.

Shape legend: J loss tokens of a micro-batch.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import replace
from statistics import fmean
from typing import Literal, Protocol

import torch
from torch import Tensor

from mas.algorithms.parts.losses.policy import bias_correction, bias_norm
from mas.algorithms.parts.losses.tokens import LossOptions, Signals, Surrogate, TokenLosses, token_losses
from mas.config.options import LearnerOptions
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.logits import Head
from mas.serving.model import BaseModel
from mas.training.batch import (
    MicroBatch,
    PackCost,
    Sharing,
    TrainRow,
    build_trees,
    group_of,
    packed,
    padded,
    split_minibatches,
    trajectory_of,
)
from mas.training.batch_tensors import BatchTensors, Scores, recomputing
from mas.training.optimiser import adamw, check_gradients, gradient_norms, optimiser_tensors, restore_optimiser, set_lr
from mas.training.packing_check import check_packed, short_rows, tolerance_of
from mas.training.step_metrics import MetricAccumulator, Metrics

Logprobs = Mapping[int, Sequence[float]]
"""A number for each of a completion's tokens, such as its log-probability, by the identity of its turn."""
Reading = Literal["policy", "reference", "entropy"]
"""What is read of completions: log-probabilities under the policy in training or the reference, or entropies."""


class Ranks(Protocol):
    """Other processes that compute a share of every update; see `mas.training.ranks`."""

    def accumulate(
        self,
        learner: "Learner",
        rows: Sequence[TrainRow],
        tallies: Mapping[str, MetricAccumulator],
        start: Logprobs | None,
    ) -> None:
        """As `Learner.accumulate`, over all processes."""

    def apply(self, learner: "Learner", touched: Collection[str]) -> None:
        """The learner has made its optimiser step for these adapters: the others make it, too."""

    def read(self, learner: "Learner", rows: Sequence[TrainRow], what: Reading) -> Logprobs:
        """A number for every token of the rows' completions."""


class Learner:
    """Owns the trainable adapters (float32) and their optimisers.

    Args:
        adapters: name -> weights; copied, the caller's stay as they are.
        surrogate: the policy loss of each token, in place of `loss.surrogate`.

    Attributes:
        references: with `loss.reference` the moving average of every adapter, which the KL is measured to; read before
            it follows the step that it was read in. Empty: the reference is the base.
        updates: how often adapters were updated; an update of several adapters at once is one.
        tolerance: mean nats a token by which two right ways to compute a log-probability may differ with this model.
        ranks: other processes that share the work; None: there are none.
        changes: how often weights were changed in another way than by an update.

    Raises:
        ModelError: the model does not compute packed what it computes alone.
    """

    def __init__(
        self,
        base: BaseModel,
        adapters: Mapping[str, AdapterWeights],
        options: LearnerOptions,
        loss: LossOptions,
        surrogate: Surrogate | None = None,
    ) -> None:
        self.base = base
        self.options = options
        self.loss = loss
        self.surrogate = surrogate
        self.ranks: Ranks | None = None
        self.head = Head.of(base.model)
        self._cost = pack_cost_of(base)
        self.adapters = {name: weights.snapshot() for name, weights in adapters.items()}
        kept = adapters if loss.reference is not None else {}
        self.references = {name: weights.snapshot() for name, weights in kept.items()}
        self.optimisers = {
            name: adamw(weights.parameters(), options, options.lr) for name, weights in self.adapters.items()
        }
        self.updates = self.changes = 0
        self._taken: dict[str, dict[Tensor, Tensor]] = defaultdict(dict)
        rows = short_rows(base)
        self.tolerance = tolerance_of(base, rows)
        check_packed(base.model, base.bank, self.head, self.micro_batches(rows), self.tolerance)

    def step(self, rows: Sequence[TrainRow], *, lr_scale: float = 1.0) -> dict[str, Metrics]:
        """Improve every adapter that has rows; returns metrics per adapter over all epochs and minibatches.

        `lr_scale` multiplies the learning rate in this step. `behaviour_gap` is that of the policy before it.

        Raises:
            TrainingError: a gradient reached the wrong adapter, is missing, or is not finite.
        """
        self.begin(lr_scale)
        is_repeated = self.options.epochs * self.options.minibatches > 1
        start = self.logprobs(rows) if is_repeated else None
        if is_repeated and self.loss.kl and self.loss.kl_in == "loss":
            base = self.logprobs(rows, is_reference=True)
            rows = [replace(row, reference=base[id(row.turn)]) for row in rows]
        tallies: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
        norms: dict[str, list[float]] = defaultdict(list)
        for _ in range(self.options.epochs):
            for part in split_minibatches(rows, self.options.minibatches, self.loss):
                for name, norm in self.update(part, tallies, start).items():
                    norms[name].append(norm)
        if self.loss.reference is not None:
            for name in norms:
                self.references[name].approach(self.adapters[name], 1 - self.loss.reference.ema)
            self.changes += 1
        return {name: tallies[name].metrics() | {"gradient_norm": fmean(norms[name])} for name in sorted(tallies)}

    def begin(self, lr_scale: float) -> None:
        """A step begins, in which the learning rate is multiplied by `lr_scale`."""
        torch.set_num_threads(self.base.options.threads)
        set_lr(self.optimisers, self.options.lr * lr_scale)

    def minimising(self, loss: LossOptions, options: LearnerOptions) -> "Learner":
        """A learner of the same adapters with another loss and other options, and with optimisers that begin anew;
        what it learns is in the adapters of both."""
        other = copy(self)
        other.loss, other.options, other.references, other._taken = loss, options, {}, defaultdict(dict)
        other.updates, other.surrogate = 0, None
        other.optimisers = {name: adamw(own.parameters(), options, options.lr) for name, own in self.adapters.items()}
        return other

    def copy(self, source: str, names: Sequence[str]) -> None:
        """Make adapters equal to another one, with the state of its optimiser and what the KL is measured to."""
        for name in names:
            for held in (self.adapters, self.references):
                if held:
                    held[name].approach(held[source], 1)
            state = optimiser_tensors(self.optimisers[source], self.adapters[source].parameters())
            own = {key: value.clone() for key, value in state.items()}
            restore_optimiser(self.optimisers[name], self.adapters[name].parameters(), own)
            self.changes += 1

    def micro_batches(self, rows: Sequence[TrainRow]) -> list[MicroBatch]:
        """How rows go through the model: packed or padded, with or without sharing, as the options say."""
        options = self.options
        together, apart = (trajectory_of, group_of) if self.loss.ratio == "sequence" else (None, None)
        # Apart, since a beginning that all prompts share would tie all trajectories into one micro-batch.
        sharing = Sharing(options.share_prompts, options.join_turns)
        trees = build_trees(rows, sharing, options.micro_batch_tokens, apart)
        if options.pack:
            return packed(trees, options.micro_batch_tokens, self._cost, together)
        return padded(trees, options.micro_batch_tokens, together)

    def logprobs(
        self,
        rows: Sequence[TrainRow],
        *,
        is_reference: bool = False,
        adapters: Mapping[str, AdapterWeights] | None = None,
    ) -> Logprobs:
        """What the policy in training, the reference, or these adapters give the rows' completions now."""
        what: Reading = "reference" if is_reference else "policy"
        if self.ranks is None or adapters is not None:
            return self.read(rows, what, adapters)
        return self.ranks.read(self, rows, what)

    def entropies(self, rows: Sequence[TrainRow]) -> Logprobs:
        """Of the policy in training at every token of the completions, in nats; over a turn's choices if it has any."""
        return self.read(rows, "entropy") if self.ranks is None else self.ranks.read(self, rows, "entropy")

    def read(
        self, rows: Sequence[TrainRow], what: Reading, adapters: Mapping[str, AdapterWeights] | None = None
    ) -> Logprobs:
        """A number for every token of the rows' completions, computed in this process.

        Args:
            adapters: name -> weights, in place of those that `what` names.
        """
        if adapters is None:
            adapters = self.references if what == "reference" else self.adapters
        found: dict[int, Sequence[float]] = {}
        for batch in self.micro_batches(rows):
            scores = self._frozen(BatchTensors(batch, self.base.bank.device), adapters)
            tokens = iter((scores.entropy_J if what == "entropy" else scores.logprobs_J).tolist())
            for row in batch.rows:
                found[id(row.turn)] = [next(tokens) for _ in row.turn.completion_ids]
        return found

    def update(
        self, rows: Sequence[TrainRow], tallies: Mapping[str, MetricAccumulator], start: Logprobs | None
    ) -> dict[str, float]:
        """One update of every adapter that has rows, weighted as they are; returns their gradient norms. Arguments and
        errors are those of `accumulate` and `step`."""
        touched = {row.adapter for row in rows}
        if self.ranks is None or not rows:
            self.accumulate(rows, tallies, start)
            return self.apply(touched, tallies)
        self.ranks.accumulate(self, rows, tallies, start)
        norms = self.apply(touched, tallies)
        self.ranks.apply(self, touched)
        return norms

    def apply(self, touched: Collection[str], tallies: Mapping[str, MetricAccumulator]) -> dict[str, float]:
        """Make the optimiser step of adapters that have a gradient; returns the norms of their gradients.

        Raises:
            TrainingError: see `step`.
        """
        if self.loss.bias_correction:
            self._correct(tallies)
        norms = gradient_norms(self.adapter_tensors(), touched, self.options.clip_norm)
        for name in norms:
            self.optimisers[name].step()
        self.updates += 1
        return norms

    def adapter_tensors(self) -> dict[str, Sequence[Tensor]]:
        """Adapter -> its tensors."""
        return {name: weights.parameters() for name, weights in self.adapters.items()}

    def add_up(self, own: Collection[str], touched: Collection[str], total: Callable[[Sequence[Tensor]], bool]) -> bool:
        """Add up the gradients over the processes that share an update, and with `bias_correction` what clipping took
        from them.

        Args:
            own: adapters with rows in this process. touched: with rows in any.
            total: replaces tensors by their sums over all processes; False: it cannot.

        Returns:
            What `total` returned.

        Raises:
            TrainingError: a gradient reached the wrong adapter, or is missing in a part of an adapter.
        """
        trained, names = self.adapter_tensors(), sorted(touched)
        present = {name: float(any(tensor.grad is not None for tensor in trained[name])) for name in names}
        check_gradients(trained, {name for name in own if present[name]})
        found = [counts := torch.tensor([present[name] for name in names])]
        for tensor in (tensor for name in names for tensor in trained[name]):
            if tensor.grad is None:
                tensor.grad = torch.zeros_like(tensor)
            found.append(tensor.grad)
        if self.loss.bias_correction:
            for name in names:
                found += [self._taken[name].setdefault(one, torch.zeros_like(one)) for one in trained[name]]
        is_whole = total(found)
        for name, count in zip(names, counts.tolist(), strict=True):
            if not count:  # in no process: the optimiser step says so
                for tensor in trained[name]:
                    tensor.grad = None
        return is_whole

    def accumulate(
        self, rows: Sequence[TrainRow], tallies: Mapping[str, MetricAccumulator], start: Logprobs | None = None
    ) -> float:
        """The loss of one batch of rows; its gradients are left in the adapters, those of before are gone.

        Args:
            tallies: name -> where an adapter's metrics are added up.
            start: of the policy at the start of the step; None: it is the policy now.
        """
        for optimiser in self.optimisers.values():
            optimiser.zero_grad(set_to_none=True)
        self._taken.clear()
        losses = [self._backward(batch, tallies, start) for batch in self.micro_batches(rows)]
        return float(torch.stack(losses).sum()) if losses else 0.0

    def _backward(self, batch: MicroBatch, tallies: Mapping[str, MetricAccumulator], start: Logprobs | None) -> Tensor:
        tensors, model = BatchTensors(batch, self.base.bank.device), self.base.model
        reference_J = self._reference(tensors)
        with (
            self.base.bank.segmented(tensors.segments(self.adapters)),
            recomputing(model, self.base.bank, layers=self.options.recompute_layers),
        ):
            chunk, entropy_slope = self.options.logit_chunk, self.loss.entropy > 0
            scores = tensors.scores(self.head, tensors.hidden(model), chunk, entropy_slope=entropy_slope)
            losses = self._losses(tensors, scores, start, reference_J)
            weight_J = tensors.per_token([row.weight for row in batch.rows])
            loss = (losses.loss_J * weight_J).sum()
            if losses.taken_J is not None:
                self._take((losses.taken_J * weight_J).sum())
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]
        turns = [row.turn for row in batch.rows for _ in row.turn.completion_ids]
        for name, rows, tokens in tensors.adapters():
            tallies[name].add(losses.values, rows, tokens, turns)
        return loss.detach()

    def _take(self, taken: Tensor) -> None:
        """Add up the gradient that clipping takes from every adapter in one micro-batch, whose graph stays."""
        if not taken.requires_grad or not taken.detach().any():
            return
        owned = [(name, tensor) for name, weights in self.adapters.items() for tensor in weights.parameters()]
        found = torch.autograd.grad(taken, [tensor for _, tensor in owned], retain_graph=True, allow_unused=True)
        for (name, tensor), gradient in zip(owned, found, strict=True):
            if gradient is not None:
                own = self._taken[name]
                own[tensor] = own[tensor] + gradient if tensor in own else gradient

    def _correct(self, tallies: Mapping[str, MetricAccumulator]) -> None:
        """Divide the gradient of each adapter that has one by 1 + the norm of what clipping took from it."""
        for name, weights in self.adapters.items():
            touched = [tensor.grad for tensor in weights.parameters() if tensor.grad is not None]
            if touched:
                norm = bias_norm([*self._taken[name].values()])
                tallies[name].note("clipping_bias", norm)
                for gradient in touched:
                    gradient.mul_(bias_correction(norm))

    def _losses(
        self, tensors: BatchTensors, scores: Scores, start: Logprobs | None, reference_J: Tensor | None
    ) -> TokenLosses:
        rows = tensors.batch.rows
        now_J = scores.logprobs_J.detach()
        signals = Signals(
            logprobs_J=scores.logprobs_J,
            start_J=now_J if start is None else tensors.joined([start[id(row.turn)] for row in rows]),
            behaviour_J=tensors.joined([row.turn.logprobs for row in rows]),
            advantage_J=tensors.advantages(),
            row_J=tensors.row_J,
            trajectory_J=tensors.trajectory_J,
            entropy_J=scores.entropy_J,
            reference_J=reference_J,
            usual_J=tensors.per_token([row.usual for row in rows]) if self.loss.smoothing else None,
            smoothing_J=tensors.per_token([row.smoothing for row in rows]) if self.loss.smoothing else None,
        )
        return token_losses(signals, self.loss, self.surrogate)

    def _reference(self, tensors: BatchTensors) -> Tensor | None:
        """Of the reference, [J]; None: the loss does not ask for it."""
        if not self.loss.kl:
            return None
        if all(row.reference for row in tensors.batch.rows):
            return tensors.joined([row.reference for row in tensors.batch.rows])
        return self._frozen(tensors, self.references).logprobs_J

    def _frozen(self, tensors: BatchTensors, adapters: Mapping[str, AdapterWeights]) -> Scores:
        """The loss tokens without gradients."""
        with torch.no_grad(), self.base.bank.segmented(tensors.segments(adapters)):
            return tensors.scores(self.head, tensors.hidden(self.base.model), self.options.logit_chunk)


def pack_cost_of(base: BaseModel) -> PackCost:
    """Multiplications of one token in all linear layers, and of one pair of tokens in all attentions."""
    config = base.model.config.get_text_config()
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    linear = sum(layer.weight.numel() for layer in base.model.modules() if isinstance(layer, torch.nn.Linear))
    return PackCost(float(linear), 2.0 * heads * size * config.num_hidden_layers)
