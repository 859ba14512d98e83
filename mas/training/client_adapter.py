"""One adapter that a client trains call by call: it sends the data of a loss, then says when a step is made.

Gradients add up over calls until the step. A call adds all of its gradient or, where it fails, nothing.

Shape legend: N data, T places of the longest, M = N T; R places that are read, K targets at each, P = R K.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor

from mas.config.options import LearnerOptions
from mas.core.errors import CheckpointError, RefusedRequest, TrainingError
from mas.serving.adapter_weights import AdapterWeights, segments_of
from mas.serving.logits import Head, Picks, pick
from mas.serving.model import BaseModel
from mas.training.batch_tensors import recomputing
from mas.training.client_losses import ClientLoss, find_client_loss
from mas.training.optimiser import adamw, gradient_norms, optimiser_tensors, restore_optimiser

_NAME = "adapter"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientDatum:
    """A sequence and what a loss needs of it.

    Attributes:
        tokens: T ids, which the model reads.
        targets: int64 [T], or [T, K] for several at each place: what is predicted there.
        inputs: name -> float32 of the shape of `targets`.
    """

    tokens: NDArray[np.int64]
    targets: NDArray[np.int64]
    inputs: Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientLossOutput:
    """`logprobs`: of every datum's targets, in their shape, in nats. `loss`: summed over all data."""

    logprobs: Sequence[NDArray[np.float32]]
    loss: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientStep:
    """The settings of one step of AdamW. `clip_norm`: largest norm of the gradient; 0: any."""

    lr: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    clip_norm: float

    def check(self) -> None:
        """Refuse settings that AdamW does not take.

        Raises:
            RefusedRequest: says which.
        """
        if not (math.isfinite(self.eps) and self.eps > 0):
            raise RefusedRequest(f"eps is {self.eps}; it must be finite and above 0")
        for name in ("lr", "weight_decay", "clip_norm"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise RefusedRequest(f"{name} is {value}; it must be finite and at least 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise RefusedRequest(f"{name} is {getattr(self, name)}; it must be at least 0 and below 1")


class ClientAdapter:
    """Weights, the gradient since the last step, and AdamW.

    Args:
        weights: where it begins; copied.
        options: how much goes through the model at once.
    """

    def __init__(self, base: BaseModel, weights: AdapterWeights, options: LearnerOptions) -> None:
        self.base = base
        self.options = options
        self.weights = weights.snapshot()
        self.steps = 0
        self._head = Head.of(base.model)
        self._optimiser = adamw(self.weights.parameters(), options, options.lr)
        self._failed = ""

    def compute(
        self,
        read: Callable[[], Sequence[ClientDatum]],
        loss_name: str,
        config: Mapping[str, float | str],
        *,
        backward: bool,
    ) -> ClientLossOutput:
        """The loss of data; with `backward` its gradient is added to that of before.

        Args:
            read: gives the data; what it raises fails the next step, as all else.

        Raises:
            RefusedRequest: the data or settings do not fit the loss or the model.
            TrainingError: the loss is not finite.
        """
        try:
            return self._compute(read(), loss_name, config, backward)
        except Exception as error:
            if backward:
                self._failed = str(error) or type(error).__name__
            raise

    def _compute(
        self, data: Sequence[ClientDatum], loss_name: str, config: Mapping[str, float | str], backward: bool
    ) -> ClientLossOutput:
        loss = find_client_loss(loss_name)
        if not data:
            raise RefusedRequest("no data: send at least one datum")
        torch.set_num_threads(self.base.options.threads)
        settings = loss.settings(loss_name, config, frozenset.intersection(*(frozenset(one.inputs) for one in data)))
        for number, datum in enumerate(data):
            self._check(number, datum, loss_name, loss)
        logprobs: dict[int, NDArray[np.float32]] = {}
        total, gradient = 0.0, [torch.zeros_like(one) for one in self.weights.parameters()] if backward else []
        for part in self._parts(data):
            own = [data[number] for number in part]
            value, found = self._part(own, lambda datum, log: loss.value(log, self._inputs(datum), settings), gradient)
            total += value
            logprobs.update(zip(part, found, strict=True))
        if backward:
            for parameter, new in zip(self.weights.parameters(), gradient, strict=True):
                parameter.grad = new if parameter.grad is None else parameter.grad + new
        return ClientLossOutput(logprobs=[logprobs[number] for number in range(len(data))], loss=total)

    def _part(
        self, data: Sequence[ClientDatum], loss_of: Callable[[ClientDatum, Tensor], Tensor], gradient: Sequence[Tensor]
    ) -> tuple[float, list[NDArray[np.float32]]]:
        """The loss and log-probabilities of data that go through the model together.

        Args:
            gradient: what their gradient is added to; empty: it is not wanted.
        """
        longest = max(len(datum.tokens) for datum in data)
        with (
            torch.set_grad_enabled(bool(gradient)),
            self.base.bank.segmented(segments_of([(self.weights, len(data) * longest)])),
            recomputing(self.base.model, self.base.bank, layers=bool(gradient) and self.options.recompute_layers),
        ):
            logprobs = self._logprobs(data, longest)
            loss = torch.stack([loss_of(*pair) for pair in zip(data, logprobs, strict=True)]).sum()
            value = loss.item()
            if not math.isfinite(value):
                raise TrainingError(f"the loss is {value}: a ratio of probabilities is not finite; check logprobs")
            if gradient:
                for sum_, one in zip(gradient, torch.autograd.grad(loss, self.weights.parameters()), strict=True):
                    sum_ += one
        found = [
            own.detach().cpu().numpy().reshape(datum.targets.shape) for datum, own in zip(data, logprobs, strict=True)
        ]
        return value, found

    def _check(self, number: int, datum: ClientDatum, loss_name: str, loss: ClientLoss) -> None:
        where, limits = f"datum {number}", self.base.limits
        names = set(datum.inputs)
        if missing := sorted(loss.needs - names):
            raise RefusedRequest(f"{where} has no {missing[0]!r}, which {loss_name} needs in loss_fn_inputs")
        if unknown := sorted(names - loss.needs - loss.may):
            raise RefusedRequest(f"{where}: {loss_name} has no use for {unknown[0]!r}: leave it out of loss_fn_inputs")
        if not 0 < len(datum.tokens) <= limits.context:
            raise RefusedRequest(f"{where} has {len(datum.tokens)} tokens; 1 to {limits.context} are possible")
        shape, is_wide = datum.targets.shape, datum.targets.ndim == 2
        if shape[:1] != datum.tokens.shape or datum.targets.ndim > 2 or 0 in shape or (is_wide and not loss.is_wide):
            wanted = f"[{len(datum.tokens)}]" + (f" or [{len(datum.tokens)}, K]" if loss.is_wide else "")
            raise RefusedRequest(f"{where}: target_tokens is {[*shape]}; {loss_name} needs {wanted}")
        for ids in (datum.tokens, datum.targets):
            if ids.min() < 0 or ids.max() >= limits.vocabulary:
                raise RefusedRequest(f"{where} has a token id outside 0 to {limits.vocabulary - 1}")
        for name, values in datum.inputs.items():
            if values.shape != shape:
                raise RefusedRequest(f"{where}: {name} is {[*values.shape]} and target_tokens {[*shape]}")
            if not np.isfinite(values).all():
                raise RefusedRequest(f"{where}: {name} has a number that is not finite")

    def _parts(self, data: Sequence[ClientDatum]) -> Iterator[list[int]]:
        """Indices of data that go through the model together: alike in length, `micro_batch_tokens` at most."""
        order = sorted(range(len(data)), key=lambda number: len(data[number].tokens))
        part: list[int] = []
        for number in order:
            if part and (len(part) + 1) * len(data[number].tokens) > self.options.micro_batch_tokens:
                yield part
                part = []
            part.append(number)
        yield part

    def _logprobs(self, data: Sequence[ClientDatum], longest: int) -> list[Tensor]:
        """Of every datum's targets. Padding stands behind a sequence, where none of its tokens sees it."""
        device = self.base.bank.device
        ids_NT = torch.zeros(len(data), longest, dtype=torch.long)
        for row, datum in enumerate(data):
            ids_NT[row, : len(datum.tokens)] = torch.from_numpy(datum.tokens)
        model = self.base.model
        output = model.base_model(
            input_ids=ids_NT.to(device),
            position_ids=torch.arange(longest, device=device).expand(ids_NT.shape),
            use_cache=False,
        )
        places = [np.arange(len(datum.tokens)) + row * longest for row, datum in enumerate(data)]
        hidden_RD = output.last_hidden_state.flatten(0, 1).index_select(
            0, torch.from_numpy(np.concatenate(places)).to(device)
        )
        picks = _picks(data, device)
        picked = pick(self._head, hidden_RD, picks, self.options.logit_chunk, entropy_slope=False)
        logprobs_P = picked.logits_P - picked.lse_R[picks.reading_P]
        return list(torch.split(logprobs_P, [datum.targets.size for datum in data]))

    def _inputs(self, datum: ClientDatum) -> dict[str, Tensor]:
        return {name: torch.from_numpy(one.ravel()).to(self.base.bank.device) for name, one in datum.inputs.items()}

    def step(self, settings: ClientStep) -> float:
        """One step of AdamW; the gradient is gone then. Returns its norm, before clipping.

        Raises:
            RefusedRequest: the settings are impossible, there is no gradient, or a call since the last step failed,
                whose part of it is missing. The gradient is gone then, too.
            TrainingError: the gradient is not finite.
        """
        parameters = self.weights.parameters()
        try:
            settings.check()
            if self._failed:
                raise RefusedRequest(
                    f"a forward_backward since the last step failed ({self._failed}): no step was made, and the other "
                    "gradients are dropped; send all data of this step again"
                )
            if any(one.grad is None for one in parameters):
                raise RefusedRequest("no gradient: send forward_backward before optim_step")
            norm = gradient_norms({_NAME: parameters}, {_NAME}, settings.clip_norm or math.inf)[_NAME]
            for group in self._optimiser.param_groups:
                group["lr"], group["betas"] = settings.lr, (settings.beta1, settings.beta2)
                group["eps"], group["weight_decay"] = settings.eps, settings.weight_decay
            self._optimiser.step()
            self.steps += 1
        finally:
            self.drop()
        return norm

    def fail(self, why: str) -> None:
        """A call that adds gradient could not be read: the next step fails, too."""
        self._failed = why

    def drop(self) -> None:
        """The gradient is gone, as after a step."""
        self._optimiser.zero_grad(set_to_none=True)
        self._failed = ""

    def optimiser_file(self) -> bytes:
        """The state of AdamW as safetensors."""
        return safetensors.torch.save(optimiser_tensors(self._optimiser, self.weights.parameters()))

    def restore(self, weights: AdapterWeights, optimiser: bytes | None) -> None:
        """Continue from other weights of the same shape; the gradient is gone then.

        Args:
            optimiser: of `optimiser_file`; None: AdamW begins anew.

        Raises:
            RefusedRequest: the shapes or alpha differ. CheckpointError: the state is damaged, or of another adapter.
        """
        if [one.shape for one in weights.parameters()] != [one.shape for one in self.weights.parameters()]:
            raise RefusedRequest(
                f"the checkpoint has rank {weights.options.rank} on {len(weights.pairs)} layers and this model rank "
                f"{self.weights.options.rank} on {len(self.weights.pairs)}: make a model from the checkpoint instead"
            )
        if weights.options.alpha != self.weights.options.alpha:
            raise RefusedRequest(
                f"the checkpoint was trained with model.lora.alpha={weights.options.alpha:g} and this server has "
                f"{self.weights.options.alpha:g}: start it with model.lora.alpha={weights.options.alpha:g}"
            )
        state = {} if optimiser is None else self._state(optimiser)
        with torch.no_grad():
            for mine, its in zip(self.weights.parameters(), weights.parameters(), strict=True):
                mine.copy_(its)  # also where mine is no number any more
        restore_optimiser(self._optimiser, self.weights.parameters(), state)
        self.drop()

    def _state(self, content: bytes) -> dict[str, Tensor]:
        parameters = self.weights.parameters()
        try:
            tensors = safetensors.torch.load(content)
            fits = all(
                tensor.ndim == 0 or tensor.shape == parameters[int(name.partition(".")[0])].shape
                for name, tensor in tensors.items()
            )
        except (safetensors.SafetensorError, ValueError, IndexError) as error:
            raise CheckpointError(f"the optimiser's state cannot be read: {error}") from error
        if not fits:
            raise CheckpointError("the optimiser's state is of another adapter")
        return tensors


def _picks(data: Sequence[ClientDatum], device: torch.device) -> Picks:
    """Every target of every place, place by place."""
    counts = np.concatenate([np.full(len(datum.tokens), datum.targets.size // len(datum.tokens)) for datum in data])
    first: list[float] = []
    for datum in data:
        for own in datum.targets.reshape(len(datum.tokens), -1).tolist():
            at_first = {token: len(own) - 1 - at for at, token in enumerate(reversed(own))}
            first += [float(at_first[token] == at) for at, token in enumerate(own)]
    return Picks(
        heat_R1=torch.ones(len(counts), 1, device=device),
        is_heated=False,
        reading_P=torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device),
        token_P=torch.from_numpy(np.concatenate([datum.targets.ravel() for datum in data])).to(device),
        first_P=torch.tensor(first, device=device),
        starts=[0, *np.cumsum(counts).tolist()],
    )
