"""mas's learner, and the least that any learner must do: the frozen base, forward and backward."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from benchmarks.learner.names import FLOOR
from benchmarks.learner.rows import useful_tokens
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.batch_tensors import BatchTensors
from mas.training.learner import Learner

CLIP, DUAL_CLIP = 0.2, 3.0
"""How far a ratio may be from 1, and what a bad token counts as at most."""
LOSS = LossOptions(clip_low=CLIP, clip_high=CLIP, dual_clip=DUAL_CLIP, importance_cap=None, entropy=0.0)
"""What everybody minimises: the clipped policy loss alone, a mean over a role's rows of the mean over their tokens."""

STEP_LOSS = "step_loss"
"""The loss that is minimised."""
TOKEN_LOSS = "token_loss"
"""The mean of the same token losses over all tokens of a role, as mas's metrics tell it."""


def learner_options(micro_batch_tokens: int) -> LearnerOptions:
    """Everybody's optimiser. The norm of gradients is computed and never so large that they are scaled down."""
    return LearnerOptions(lr=1e-4, clip_norm=1e9, micro_batch_tokens=micro_batch_tokens)


class LearnerCompetitor(Protocol):
    """One way to do a step.

    Attributes:
        adapters: role -> name of a tensor (`LAYER.A`, `LAYER.B`) -> what is trained, with the last step's gradient;
            none where there are no adapters.
        losses: role -> `STEP_LOSS` and `TOKEN_LOSS` of the last step, as far as they are known.
    """

    @property
    def name(self) -> str: ...

    @property
    def adapters(self) -> Mapping[str, Mapping[str, Tensor]]: ...

    @property
    def losses(self) -> Mapping[str, Mapping[str, float]]: ...

    async def run(self, number: int) -> int:
        """Do one step to its end, on a GPU as well, and return the useful tokens."""


def settle(device: torch.device) -> None:
    """Wait until a GPU has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class OurLearner:
    """`Learner.step`."""

    def __init__(
        self,
        name: str,
        base: BaseModel,
        adapters: Mapping[str, AdapterWeights],
        rows: Sequence[TrainRow],
        options: LearnerOptions,
    ) -> None:
        self.name = name
        self.losses: dict[str, dict[str, float]] = {}
        self._learner = Learner(base, adapters, options, LOSS)
        self._rows = rows

    @property
    def adapters(self) -> Mapping[str, Mapping[str, Tensor]]:
        return {
            role: {f"{layer}.{part}": tensor for layer, pair in weights.pairs.items() for part, tensor in _parts(pair)}
            for role, weights in self._learner.adapters.items()
        }

    async def run(self, number: int) -> int:
        metrics = self._learner.step(self._rows)
        settle(self._learner.base.bank.device)
        self.losses = {role: {TOKEN_LOSS: found["policy_loss"]} for role, found in metrics.items()}
        return useful_tokens(self._rows)


def _parts(pair: tuple[Tensor, Tensor]) -> Iterator[tuple[str, Tensor]]:
    yield from zip("AB", pair, strict=True)


class FrozenBase:
    """Forward and backward of the bare base for the same micro-batches: about the least that a step can take.

    The backward pass goes to the embeddings of the input, through every layer, and to no weight.
    """

    def __init__(self, base: BaseModel, rows: Sequence[TrainRow], options: LearnerOptions) -> None:
        self.name = FLOOR
        self.adapters: dict[str, dict[str, Tensor]] = {}
        self.losses: dict[str, dict[str, float]] = {}
        self._learner = Learner(base, {}, options, LOSS)
        self._rows = rows

    async def run(self, number: int) -> int:
        learner = self._learner
        base, chunk = learner.base, learner.options.logit_chunk
        torch.set_num_threads(base.options.threads)
        embeddings: Any = base.model.get_input_embeddings()
        hook = embeddings.register_forward_hook(lambda module, ids, output: output.requires_grad_(True))
        try:
            for batch in learner.micro_batches(self._rows):
                tensors = BatchTensors(batch, base.bank.device)
                with base.bank.segmented(tensors.segments({})):
                    scores = tensors.scores(learner.head, tensors.hidden(base.model), chunk)
                    (-scores.logprobs_J.mean()).backward()  # type: ignore[no-untyped-call]  # torch annotates in part
        finally:
            hook.remove()
        settle(base.bank.device)
        return useful_tokens(self._rows)
