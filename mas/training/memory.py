"""What a run needs of memory, estimated before weights are loaded: printed, and refused where it cannot fit."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from mas.core.errors import ModelError
from mas.core.free_memory import gib
from mas.serving.base_checks import Footprint, free_on
from mas.training.setup import Setup
from mas.training.work_estimate import Work, agents_at_once, rows_at_once, rows_of

_COPIES = 6
"""An adapter's weights, gradients, AdamW's two moments, the published copy, and those that are joined for decoding."""
_PLAYED = 2
"""The same without a learner."""
_SPARE = 2
"""The cache's buffers are twice as long as what is in use, at most."""
_LOGITS = 3
"""The logits of a token, their log-softmax and its gradient."""


LESS_MEMORY = (
    "A smaller model.max_batch, train.tasks_per_step, train.eval_tasks or learner.micro_batch_tokens needs less, and "
    "so does learner.recompute_layers=true"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Bytes by what needs them: the base, all adapters with their optimisers, the key-value cache with the logits of
    its rows, and what the learner keeps for the backward pass."""

    base: int
    adapters: int
    cache: int
    learner: int

    @property
    def sure(self) -> int:
        """What must be there whatever is played."""
        return self.base + self.adapters

    @property
    def all(self) -> int:
        """Everything."""
        return self.sure + self.cache + self.learner

    def text(self) -> str:
        """For people."""
        parts = {
            "base": self.base, "adapters and optimisers": self.adapters, "key-value cache": self.cache,
            "learner": self.learner,
        }  # fmt: skip
        named = ", ".join(f"{name} {gib(size)}" for name, size in parts.items() if size)
        return f"about {gib(self.all)} ({named})"


def needs_of(setup: Setup, footprint: Footprint, work: Work, *, is_trained: bool) -> Needs:
    """What playing needs, with as many rows as a step or an evaluation decodes together, and training with it.

    Args:
        work: what a task takes at most.
    """
    model, learner, adapters = setup.model, setup.learner, len(set(setup.trained_adapters.values()))
    is_trained = is_trained and adapters > 0
    rows = max(rows_at_once(setup) if is_trained else 0, setup.train.eval_tasks * agents_at_once(setup.plan))
    width = max(work.width, work.widest)
    rows = max(min(rows, model.max_batch, model.max_batch_tokens // max(width, 1)), 1)
    tokens = logits = 0
    if is_trained:
        tasks, plays = setup.train.tasks_per_step, rows_of(setup)
        # candidates of one state heard the same messages; in episodes of their own each hears others
        heard = work.heard_tokens * (tasks if setup.algorithm.sampler.mode == "tree" else plays)
        step = tasks * work.prompt_tokens + heard + plays * work.new_tokens
        tokens = min(learner.micro_batch_tokens, round(step / learner.minibatches))
        logits = _LOGITS * footprint.logits * min(learner.logit_chunk or tokens, tokens)
    kept = footprint.layer_input if learner.recompute_layers else footprint.activation
    is_embedded = setup.engine.name == "transformers"
    return Needs(
        base=footprint.weights,
        adapters=adapters * footprint.adapter * (_COPIES if is_trained else _PLAYED),
        cache=rows * (_SPARE * width * footprint.cached + 2 * footprint.logits) if is_embedded else 0,
        learner=tokens * kept + logits,
    )


def check_memory(setup: Setup, needs: Needs, note: Callable[[str], None]) -> None:
    """Print what is needed and what is free.

    Args:
        note: called with a line of text.

    Raises:
        ModelError: the base and the adapters alone need more than is free, and `model.check_memory` is true.
    """
    free = free_on(setup.model)
    beside = "" if setup.engine.name == "transformers" else f"; what engine={setup.engine.name} takes is not counted"
    if free is None:
        note(f"memory: {needs.text()}; how much is free is not known here{beside}")
        return
    note(f"memory: {needs.text()}; {gib(free)} free{beside}")
    if needs.sure > free and setup.model.check_memory:
        smaller = "" if setup.model.dtype == "bfloat16" else "model.dtype=bfloat16 halves the base; "
        raise ModelError(
            f"{setup.model.path!r} does not fit: base and adapters need {gib(needs.sure)}, {gib(free)} of memory are "
            f"free. {smaller}a smaller model.path or model.lora.rank, or a larger machine; model.check_memory=false "
            "tries it all the same"
        )
    if needs.all > free:
        note(f"memory may not suffice. {LESS_MEMORY}")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether torch or Python got no memory; torch's allocator on the CPU raises a plain RuntimeError."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )
