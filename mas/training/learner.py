"""The learner: one resident base, every role's adapter in the same forward and backward, one AdamW per adapter.

Each step asserts what role adapters need to train at all: an adapter with tokens gets a gradient, every other none.

Shape legend: N loss rows, U distinct inputs, L tokens (right-aligned), V vocabulary.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from mas.config.options import LearnerOptions, LossOptions
from mas.core.errors import TrainingError
from mas.serving.forward import Row, completion_logits, right_aligned
from mas.serving.model import BaseModel
from mas.serving.weights import AdapterWeights
from mas.training.batch import MicroBatch, TrainRow, micro_batches, weighted
from mas.training.losses.policy import clipped_loss, clipped_share, entropy, kl, ratio

Metrics = dict[str, float]


class Learner:
    """Owns the trainable adapters (float32) and their optimisers.

    Args:
        adapters: name -> weights; copied, the caller's stay as they are.
    """

    def __init__(
        self, base: BaseModel, adapters: Mapping[str, AdapterWeights], options: LearnerOptions, loss: LossOptions
    ) -> None:
        self.base = base
        self.options = options
        self.loss = loss
        self.adapters = {name: weights.snapshot() for name, weights in adapters.items()}
        for weights in self.adapters.values():
            for tensor in weights.parameters():
                tensor.requires_grad_(True)
        self.optimisers = {
            name: torch.optim.AdamW(
                weights.parameters(),
                lr=options.lr,
                betas=(options.beta1, options.beta2),
                weight_decay=options.weight_decay,
            )
            for name, weights in self.adapters.items()
        }

    def step(self, rows: Sequence[TrainRow], *, lr_scale: float = 1.0) -> dict[str, Metrics]:
        """Improve every adapter that has rows; returns metrics per adapter over all epochs and minibatches.

        `lr_scale` multiplies the learning rate in this step. `behaviour_gap` alone is that of each adapter's first
        minibatch, before anything was changed.

        Raises:
            TrainingError: a gradient reached the wrong adapter, is missing, or is not finite.
        """
        torch.set_num_threads(self.base.options.threads)
        for optimiser in self.optimisers.values():
            for group in optimiser.param_groups:
                group["lr"] = self.options.lr * lr_scale
        names = sorted({row.adapter for row in rows})
        tallies = {name: Tally() for name in names}
        norms: dict[str, list[float]] = {name: [] for name in names}
        gaps: dict[str, float] = {}
        for _ in range(self.options.epochs):
            for part in self._minibatches(rows):
                for name, norm in self._optimise(part, tallies).items():
                    norms[name].append(norm)
                    gaps.setdefault(name, tallies[name].mean("behaviour_gap"))
        return {
            name: tally.metrics() | {"gradient_norm": fmean(norms[name]), "behaviour_gap": gaps[name]}
            for name, tally in tallies.items()
        }

    def _minibatches(self, rows: Sequence[TrainRow]) -> list[list[TrainRow]]:
        """Every n-th row of each adapter, weighted so that each part is a batch of its own."""
        count, loss = self.options.minibatches, self.loss
        if count == 1:
            return [list(rows)]
        seen: dict[str, int] = defaultdict(int)
        parts: list[list[TrainRow]] = [[] for _ in range(count)]
        for row in rows:
            parts[seen[row.adapter] % count].append(row)
            seen[row.adapter] += 1
        return [weighted(part, aggregation=loss.aggregation, max_length=loss.max_length) for part in parts if part]

    def _optimise(self, rows: Sequence[TrainRow], tallies: Mapping[str, "Tally"]) -> dict[str, float]:
        """One update of every adapter that has rows; returns their gradient norms."""
        for optimiser in self.optimisers.values():
            optimiser.zero_grad(set_to_none=True)
        for batch in micro_batches(rows, self.options.micro_batch_tokens):
            self._backward(batch, tallies)
        norms = self._gradient_norms({row.adapter for row in rows})
        for name in norms:
            self.optimisers[name].step()
        return norms

    def _backward(self, batch: MicroBatch, tallies: Mapping[str, "Tally"]) -> None:
        terms = LossTerms.of(self, batch)
        if terms.loss.requires_grad:
            terms.loss.backward()  # type: ignore[no-untyped-call]
        start = 0
        for stop in range(1, len(batch.rows) + 1):
            if stop == len(batch.rows) or batch.rows[stop].adapter != batch.rows[start].adapter:
                tallies[batch.rows[start].adapter].add(terms, start, stop)
                start = stop

    def _gradient_norms(self, touched: set[str]) -> dict[str, float]:
        """Norm of each touched adapter's gradient, now clipped. Checks all adapters before any of them changes.

        A norm of 0 is no error: clipped tokens, or equal outputs of opposite advantage, can leave nothing to learn.
        """
        norms = {}
        for name, weights in self.adapters.items():
            missing = [tensor.grad is None for tensor in weights.parameters()]
            if name not in touched:
                if not all(missing):
                    raise TrainingError(f"adapter {name!r} has no rows in this step and yet a gradient reached it")
                continue
            if any(missing):
                raise TrainingError(f"adapter {name!r} has rows but {sum(missing)} of its tensors have no gradient")
            norms[name] = float(torch.nn.utils.clip_grad_norm_(weights.parameters(), self.options.clip_norm))
            if not math.isfinite(norms[name]):
                raise TrainingError(
                    f"the gradient of adapter {name!r} is {norms[name]}: a reward, an advantage or a weight is not "
                    "finite; this update changed no adapter"
                )
        return norms


class LossTerms:
    """The loss of one micro-batch and the tensors that its metrics are read from."""

    def __init__(self, loss: Tensor, values: Mapping[str, Tensor], weights_NL: Tensor, mask_NL: Tensor) -> None:
        self.loss = loss
        self.values = values
        self.weights_NL = weights_NL
        self.mask_NL = mask_NL

    @classmethod
    def of(cls, learner: Learner, batch: MicroBatch) -> "LossTerms":
        """Forward pass and loss: sum over tokens of weight x (policy + kl - entropy terms)."""
        options, device = learner.loss, learner.base.bank.device
        turns = [row.turn for row in batch.rows]
        inputs = [
            Row(row.turn.prompt_ids, row.turn.completion_ids, learner.adapters[row.adapter]) for row in batch.inputs
        ]
        heat_U11 = torch.tensor([row.turn.temperature for row in batch.inputs], device=device)[:, None, None]
        logits_ULV = completion_logits(learner.base.model, learner.base.bank, inputs) / heat_U11
        index_N = torch.tensor(batch.index, device=device)
        tokens_NL = right_aligned([turn.completion_ids for turn in turns], device).long()
        weights_NL = right_aligned([[row.weight] * len(row.turn.completion_ids) for row in batch.rows], device)
        advantage_N1 = torch.tensor([[row.advantage] for row in batch.rows], device=device)

        logprobs_NL = _token_logprobs(logits_ULV, index_N, tokens_NL)
        behaviour_NL = right_aligned([turn.logprobs for turn in turns], device)
        rho_NL = ratio(logprobs_NL, behaviour_NL)
        bounds = {"clip_low": options.clip_low, "clip_high": options.clip_high}
        token_loss_NL = clipped_loss(rho_NL, advantage_N1, dual_clip=options.dual_clip, **bounds)
        entropy_NL = entropy(logits_ULV, _allowed(batch.inputs, logits_ULV))[index_N]
        values = {
            "policy_loss": token_loss_NL,
            "ratio": rho_NL,
            "clip_fraction": clipped_share(rho_NL, advantage_N1, **bounds),
            "entropy": entropy_NL,
            "behaviour_gap": (logprobs_NL - behaviour_NL).abs(),
        }
        if options.entropy:
            token_loss_NL = token_loss_NL - options.entropy * entropy_NL
        if options.kl:
            with torch.no_grad():
                bare = [Row(row.prompt_ids, row.completion_ids) for row in inputs]
                reference_ULV = completion_logits(learner.base.model, learner.base.bank, bare) / heat_U11
                reference_NL = _token_logprobs(reference_ULV, index_N, tokens_NL)
            values["kl"] = kl(logprobs_NL, reference_NL, options.kl_estimator)
            token_loss_NL = token_loss_NL + options.kl * values["kl"]
        mask_NL = weights_NL > 0
        loss = torch.where(mask_NL, token_loss_NL * weights_NL, 0.0).sum()
        return cls(loss, {name: value.detach() for name, value in values.items()}, weights_NL, mask_NL)


class Tally:
    """Sums of one adapter's token metrics over everything that it learned from in a step."""

    def __init__(self) -> None:
        self.tokens = 0
        self.rows = 0
        self.sums: dict[str, float] = defaultdict(float)
        self.ratio_max = 0.0
        self.ratio_sum = 0.0
        self.ratio_squares = 0.0

    def add(self, terms: LossTerms, start: int, stop: int) -> None:
        """Add the rows from `start` to `stop`."""
        mask = terms.mask_NL[start:stop]
        self.tokens += int(mask.sum())
        self.rows += stop - start
        for name, value_NL in terms.values.items():
            self.sums[name] += float(value_NL[start:stop][mask].sum())
        rho = terms.values["ratio"][start:stop][mask]
        self.ratio_max = max(self.ratio_max, float(rho.max()))
        self.ratio_sum += float(rho.sum())
        self.ratio_squares += float(rho.square().sum())

    def mean(self, name: str) -> float:
        """The mean of one metric over the tokens so far."""
        return self.sums[name] / self.tokens

    def metrics(self) -> Metrics:
        """Means over tokens; `ess` is the effective sample size as a share: (sum rho)^2 / (n sum rho^2)."""
        means = {name: self.mean(name) for name in self.sums}
        ess = self.ratio_sum**2 / (self.tokens * self.ratio_squares) if self.ratio_squares else 0.0
        return means | {"ratio_max": self.ratio_max, "ess": ess, "tokens": float(self.tokens), "rows": float(self.rows)}


def _token_logprobs(logits_ULV: Tensor, index_N: Tensor, tokens_NL: Tensor) -> Tensor:
    """log pi of each row's tokens, [N, L]."""
    position_L = torch.arange(tokens_NL.shape[1], device=tokens_NL.device)
    chosen_NL = logits_ULV[index_N[:, None], position_L[None], tokens_NL]
    return chosen_NL - logits_ULV.logsumexp(-1)[index_N]


def _allowed(inputs: Sequence[TrainRow], logits_ULV: Tensor) -> Tensor | None:
    """Which tokens are legal, [U, V]; None where no row lists its choices."""
    if not any(row.turn.choices for row in inputs):
        return None
    allowed_UV = torch.zeros(len(inputs), logits_ULV.shape[-1], dtype=torch.bool, device=logits_ULV.device)
    for u, row in enumerate(inputs):
        allowed_UV[u, list(row.turn.choices)] = True
        if not row.turn.choices:
            allowed_UV[u] = True
    return allowed_UV
