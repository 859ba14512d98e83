"""The check, before anything is sampled, that decoding in a running batch computes what the model itself computes.

Decoding rests on what architectures do not promise: rotary or learned positions that follow `position_ids`, attention
that is given a mask and nothing else, a cache of keys and values. A model that breaks one of these fails with an error
of its own, or computes something else. So two short texts are decoded first, and in float32 scored by the model's own
forward pass with its plainest attention, which is what its authors wrote down.
"""

from weakref import WeakSet

import torch
from torch import nn
from transformers import PreTrainedModel

from mas.core.engine import Request, Sampling
from mas.core.errors import ModelError
from mas.serving.decode import Batch, DecodeJob
from mas.serving.grammar import Grammars
from mas.serving.model import BaseModel

_TOLERANCE = 1e-4
"""Nats a token in float32."""
_NEW = 4
_checked: WeakSet[nn.Module] = WeakSet()


def check_decoding(base: BaseModel) -> None:
    """Decode two texts of different lengths together and compare; a model is checked once.

    Raises:
        ModelError: the architecture cannot be decoded, or other log-probabilities come out.
    """
    if base.model in _checked:
        return
    try:
        gap = _gap(base)
    except Exception as error:
        cause = str(error).strip().splitlines()
        why = cause[0] if cause else "no cause given"
        raise _unsupported(base, why if isinstance(error, ModelError) else f"{type(error).__name__}: {why}") from error
    if not gap <= _TOLERANCE:
        raise _unsupported(base, f"log-probabilities differ from the model's own by {gap:.2g} nats a token")
    _checked.add(base.model)


def _unsupported(base: BaseModel, why: str) -> ModelError:
    kind = base.model.config.get_text_config().model_type
    return ModelError(
        f"mas cannot use models of the architecture {kind!r} such as {base.name!r}: {why}. docs/serving.md lists those "
        "that were tried; Llama, Mistral, Qwen2, Qwen3 and Gemma 3 are among those that work"
    )


@torch.inference_mode()
def _gap(base: BaseModel) -> float:
    """The largest difference of a token's log-probability; 0 where the type is too coarse to tell."""
    prompts = [tuple((7 * place + start) % base.limits.vocabulary for place in range(1, 1 + length))
               for start, length in ((3, 11), (5, 6)) if length + _NEW <= base.limits.context]  # fmt: skip
    sampling = Sampling(temperature=0.0, max_tokens=_NEW)
    jobs = [DecodeJob(Request(prompt_ids=ids, sampling=sampling, seeds=(0,)), 0, None, None) for ids in prompts]
    batch = Batch(base, Grammars(base.text))
    batch.admit(jobs)
    while batch.jobs:
        batch.step()
    failed = next((job.error for job in jobs if job.error is not None), None)
    if failed is not None:
        raise failed
    if base.model.dtype != torch.float32:
        return 0.0
    return max((_difference(base.model, job) for job in jobs), default=0.0)


def _difference(model: PreTrainedModel, job: DecodeJob) -> float:
    used = model.config.get_text_config()._attn_implementation
    ids_1T = torch.tensor([[*job.request.prompt_ids, *job.token_ids[:-1]]], device=model.device)
    model.set_attn_implementation("eager")
    try:
        logits_LV = model(input_ids=ids_1T, use_cache=False).logits[0, -len(job.token_ids) :].float()
    finally:
        model.set_attn_implementation(used)
    theirs_L = logits_LV.log_softmax(-1).gather(-1, torch.tensor(job.token_ids, device=model.device)[:, None])[:, 0]
    return float((theirs_L - torch.tensor(job.logprobs, device=model.device)).abs().max())
