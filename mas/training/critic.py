"""A critic: what each trained adapter's agents can still expect, token by token.

Every policy adapter has a critic adapter of the same shape, which starts like a fresh policy adapter, and a linear head
that starts at 0, so that V is 0 at first. V of a token is read at the last hidden state before it, of the base with the
critic adapter alone: policy and critic share the frozen base, the micro-batches and nothing else, so no gradient of one
reaches the other. Critics are saved in checkpoints, and neither published nor exported.

Leaves out on purpose: normalised returns (PopArt) and a critic that sees what only other agents see (MAPPO).

Shape legend: J loss tokens of a micro-batch, D hidden size.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor

from mas.algorithms.parts.advantages.gae import CriticOptions
from mas.core.seeds import derive_seed
from mas.training.batch import MicroBatch, TrainRow, split_minibatches
from mas.training.batch_tensors import BatchTensors, recomputing
from mas.training.learner import Learner
from mas.training.optimiser import adamw, gradient_norms, kept_tensors, restore_kept, set_lr
from mas.training.step_metrics import Metrics

Values = Mapping[int, Sequence[float]]
"""A number for each of a completion's first tokens (all, or fewer), by the identity of its turn."""


class Critic:
    """The critics of all adapters of a learner, whose micro-batches and options of AdamW they use.

    Args:
        seed: of their new adapters. what: they are; errors name it.
    """

    def __init__(self, learner: Learner, options: CriticOptions, seed: int, *, what: str = "critic") -> None:
        self._what = what
        self.learner = learner
        self.options = options
        self.base = learner.base
        bank, size = self.base.bank, learner.head.weight_VD.shape[1]
        self.adapters = {
            name: bank.create(weights.options, derive_seed("critic", seed, name))
            for name, weights in learner.adapters.items()
        }
        self.heads = {
            name: (torch.zeros(size, device=bank.device), torch.zeros((), device=bank.device)) for name in self.adapters
        }
        self.parameters = {name: [*one.parameters(), *self.heads[name]] for name, one in self.adapters.items()}
        self.optimisers = {
            name: adamw(parameters, learner.options, options.lr) for name, parameters in self.parameters.items()
        }

    def values(self, rows: Sequence[TrainRow]) -> dict[int, list[float]]:
        """V before each token of the rows' completions."""
        torch.set_num_threads(self.base.options.threads)
        found: dict[int, list[float]] = {}
        for batch in self.learner.micro_batches(rows):
            tensors = BatchTensors(batch, self.base.bank.device)
            with torch.no_grad(), self.base.bank.segmented(tensors.segments(self.adapters)):
                values = iter(self._values(tensors).tolist())
            for row in batch.rows:
                found[id(row.turn)] = [next(values) for _ in row.turn.completion_ids]
        return found

    def step(
        self, rows: Sequence[TrainRow], targets: Values, before: Values, *, lr_scale: float = 1.0
    ) -> dict[str, Metrics]:
        """Teach the critic of every adapter that has rows; metrics per adapter, means over epochs and minibatches.

        Args:
            targets: what V should be; tokens behind those that have one teach nothing.
            before: V of all tokens at the start of the step, as `values` gave it.

        Raises:
            TrainingError: a gradient reached the wrong critic, is missing, or is not finite.
        """
        torch.set_num_threads(self.base.options.threads)
        set_lr(self.optimisers, self.options.lr * lr_scale)
        parts = split_minibatches(rows, self.options.minibatches, self.learner.loss)
        told = defaultdict[str, list[Metrics]](list)
        for _ in range(self.options.epochs):
            for part in parts:
                for name, metrics in self._update(part, targets, before).items():
                    told[name].append(metrics)
        return {name: {key: fmean(one[key] for one in told[name]) for key in told[name][0]} for name in sorted(told)}

    def _update(self, rows: Sequence[TrainRow], targets: Values, before: Values) -> dict[str, Metrics]:
        """One step of the optimiser of every critic that has rows. Arguments and errors are those of `step`."""
        for optimiser in self.optimisers.values():
            optimiser.zero_grad(set_to_none=True)
        asked: dict[str, int] = defaultdict(int)
        for row in rows:
            asked[row.adapter] += len(targets[id(row.turn)])
        losses: dict[str, float] = defaultdict(float)
        for batch in self.learner.micro_batches(rows):
            for name, loss in self._backward(batch, targets, before, asked).items():
                losses[name] += float(loss)
        norms = gradient_norms(self.parameters, set(asked), self.learner.options.clip_norm, self._what)
        for name in norms:
            self.optimisers[name].step()
        return {name: {"value_loss": losses[name], "critic_gradient_norm": norm} for name, norm in norms.items()}

    def tensors(self) -> dict[str, Tensor]:
        """All that the next step depends on, by name."""
        return kept_tensors(self.parameters, self.optimisers)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from `tensors()`.

        Raises:
            CheckpointError: they are of another critic.
        """
        restore_kept(self.parameters, self.optimisers, tensors, self._what)

    def _values(self, tensors: BatchTensors) -> Tensor:
        """V before each loss token, [J]."""
        state_JD = tensors.states(tensors.hidden(self.base.model)).float()
        found = []
        for name, _, tokens in tensors.adapters():
            weight_D, bias = self.heads[name]
            found.append(state_JD[tokens] @ weight_D + bias)
        return torch.cat(found)

    def _backward(
        self, batch: MicroBatch, targets: Values, before: Values, asked: Mapping[str, int]
    ) -> dict[str, Tensor]:
        """Leaves gradients in the critics; returns each one's share of its loss."""
        tensors = BatchTensors(batch, self.base.bank.device)
        wanted = [targets[id(row.turn)] for row in batch.rows]
        rest = [len(row.turn.completion_ids) - len(own) for row, own in zip(batch.rows, wanted, strict=True)]
        pairs = list(zip(wanted, rest, strict=True))
        target_J = tensors.joined([[*own, *[0.0] * more] for own, more in pairs])
        is_asked_J = tensors.joined([[*[1.0] * len(own), *[0.0] * more] for own, more in pairs])
        weight_J = is_asked_J * tensors.per_token([1 / asked[row.adapter] for row in batch.rows])
        before_J = tensors.joined([before[id(row.turn)] for row in batch.rows])
        with (
            self.base.bank.segmented(tensors.segments(self.adapters)),
            recomputing(self.base.model, self.base.bank, layers=self.learner.options.recompute_layers),
        ):
            loss_J = weight_J * value_loss(self._values(tensors), before_J, target_J, self.options.clip)
            loss_J.sum().backward()  # type: ignore[no-untyped-call]  # torch annotates in part
        return {name: loss_J[tokens].detach().sum() for name, _, tokens in tensors.adapters()}


def value_loss(value_J: Tensor, before_J: Tensor, target_J: Tensor, clip: float | None) -> Tensor:
    """Per token, to minimise: max((V - R)^2, (before + clamp(V - before, -clip, clip) - R)^2); None: (V - R)^2.

    With a bound, a value that has moved towards R by more than `clip` in this step has no gradient left.
    Source: as in the code of PPO (OpenAI baselines, ppo2); without a bound: PPO, arXiv 1707.06347, equation 9.

    Args:
        before_J: of the critic at the start of the step, without gradient. target_J: likewise.
    """
    loss_J = (value_J - target_J).square()
    if clip is None:
        return loss_J
    near_J = before_J + (value_J - before_J).clamp(-clip, clip)
    return torch.maximum(loss_J, (near_J - target_J).square())
