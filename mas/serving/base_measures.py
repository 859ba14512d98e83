"""What is checked and measured of a base before a run: whether decoding is right, how fast it is, and what it takes in
memory.

Decoding rests on what architectures do not promise: rotary or learned positions that follow `position_ids`, attention
that is given a mask and nothing else, a cache of keys and values. A model that breaks one of these fails with an error
of its own, or computes something else. So `check_decoding` decodes two short texts, and in float32 scores them by the
model's own forward pass with its plainest attention, which is what its authors wrote down.

`measure_speed` takes a second or two before hours of training. `Footprint` reads a model's configuration alone and
nothing of the weights; it leaves out what torch and its kernels take for themselves, the cache of an engine other than
the embedded one, and what a step needs for a moment, such as the matrices of attention.
"""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from mas.config.options import ModelOptions
from mas.core.engine import Request, Sampling
from mas.core.errors import ModelError
from mas.core.host import free_memory
from mas.serving.decode import Batch, DecodeJob
from mas.serving.grammar import Grammars
from mas.serving.model import FAILURES, NO_CODE, BaseModel, device_of, unloadable
from mas.serving.sharded_base import block_matrices

_TOLERANCE = 1e-4
"""Nats a token in float32."""
_CHECKED_TOKENS = 4
"""Drawn of each text that is compared."""
_checked: WeakSet[nn.Module] = WeakSet()
"""Models that decode as they should."""
_PROMPT_TOKENS = 16
"""Of the prompts by which reading is measured."""
_TIMED_TOKENS = 5
"""Drawn of each row by which drawing is measured."""
_READ, _DRAWN, _SHORT = 4, 32, 2
"""Rows at most by which reading is measured, and drawing, which grows with its rows and begins with shorter prompts."""
_LONGEST_S = 2.0
"""What each of the two may take, by what the one before took; a slower model is measured with fewer rows."""
_GATHERED = 2
"""Copies of a block of a sharded base while it is gathered."""
_FLOAT_BYTES = 4
"""Of a number in float32."""


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
               for start, length in ((3, 11), (5, 6)) if length + _CHECKED_TOKENS <= base.limits.context]  # fmt: skip
    sampling = Sampling(temperature=0.0, max_tokens=_CHECKED_TOKENS)
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


@dataclass(frozen=True, slots=True)
class Speed:
    """Tokens a second with `rows` rows at once: read in prompts, and drawn.

    `fixed`: share of a decoding pass's time that is the same with any number of rows, as the weights are read once.
    """

    prompt_tps: float
    new_tps: float
    rows: int
    fixed: float = 0.0

    def new_tps_with(self, rows: int) -> float:
        """New tokens a second with so many rows at once: a pass takes a + b x rows seconds."""
        times = rows / self.rows
        return self.new_tps * times / (self.fixed + (1 - self.fixed) * times)

    def text(self) -> str:
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows at once"
        return f"{self.prompt_tps:.0f} prompt tokens/s, {self.new_tps:.0f} new tokens/s with {rows}"


def measure_speed(base: BaseModel, rows: int) -> Speed:
    """Read short prompts of arbitrary ids with the bare base and draw a few tokens, by the embedded engine's own code.

    Args:
        rows: as many as would be decoded together; 32 at most are measured, and fewer of a slow model.

    Returns:
        Its `rows` are those that were drawn at once; `fixed` follows from these and from one row alone.
    """
    torch.set_num_threads(base.options.threads)
    _measured(base, 1)  # the first pass of all prepares kernels
    one, wanted = _measured(base, 1), max(min(rows, _DRAWN, base.options.max_batch), 1)
    affordable = _LONGEST_S / (_PROMPT_TOKENS / one.prompt_tps + _TIMED_TOKENS / one.new_tps)
    read = max(min(wanted, _READ, int(affordable)), 1)
    found = one
    if read > 1:  # the first pass of a shape prepares kernels again
        found = max(_measured(base, read), _measured(base, read), key=lambda speed: speed.prompt_tps)
    drawn = wanted if read * _PROMPT_TOKENS / found.prompt_tps <= _LONGEST_S else min(wanted, _READ)
    if drawn > read:
        found = replace(_measured(base, drawn, _SHORT), prompt_tps=found.prompt_tps)
    return replace(found, fixed=_fixed(one, found))


def _fixed(one: Speed, many: Speed) -> float:
    """The share of a pass with `many` rows that a row less does not shorten; 0 where there is but one row."""
    if many.rows == 1:
        return 0.0
    pass_s = many.rows / many.new_tps
    row_s = max(pass_s - 1 / one.new_tps, 0.0) / (many.rows - 1)
    return max(1 - row_s * many.rows / pass_s, 0.0)


def _measured(base: BaseModel, rows: int, prompt: int = _PROMPT_TOKENS) -> Speed:
    length = max(min(prompt, base.limits.context - _TIMED_TOKENS), 1)
    sampling = Sampling(temperature=1.0, max_tokens=_TIMED_TOKENS)
    jobs = []
    for row in range(rows):
        ids = tuple((7 * place + row) % base.limits.vocabulary for place in range(1, 1 + length))
        jobs.append(DecodeJob(Request(prompt_ids=ids, sampling=sampling, seeds=(row,)), row, None, None))
    batch = Batch(base, Grammars(base.text))
    began = time.perf_counter()
    batch.admit(jobs)  # reads the prompts and draws the first tokens
    admitted = time.perf_counter()
    while batch.jobs:
        batch.step()
    ended = time.perf_counter()
    drawn = rows * (_TIMED_TOKENS - 1)
    return Speed(rows * length / max(admitted - began, 1e-9), drawn / max(ended - admitted, 1e-9), rows)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes, and the number of parameters.

    Attributes:
        weights: of the base. adapter: of one adapter's parameters in float32, of the rank that `model.lora` says.
        cached: of the keys and values of one token.
        activation: of what the backward pass keeps of one token, without logits; layer_input: of the inputs of all
            layers alone.
        logits: of one token's logits in float32.
        blocks: of the matrices in transformer blocks, which `cluster.shard_base` shards; widest_block: of the largest.
    """

    parameters: int
    weights: int
    adapter: int
    cached: int
    activation: int
    layer_input: int
    logits: int
    blocks: int = 0
    widest_block: int = 0

    def sharded_weights(self, world: int) -> int:
        """Of the base on one of so many ranks that shard it: its part, a block that is gathered, the buffer that it is
        copied from, and all that is whole on every rank."""
        return self.weights - self.blocks + math.ceil(self.blocks / world) + _GATHERED * self.widest_block

    @classmethod
    def of(cls, options: ModelOptions, source: str | Path) -> "Footprint":
        """Of a model directory or hub id, whose configuration is read.

        Raises:
            ModelError: the configuration cannot be read, or is of no causal language model.
        """
        dtype = getattr(torch, options.dtype)
        try:
            config = AutoConfig.from_pretrained(source, **NO_CODE)
            with torch.device("meta"):
                kind: Any = AutoModelForCausalLM  # transformers annotates in part
                model = kind.from_config(config, dtype=dtype, attn_implementation=None, **NO_CODE)
        except FAILURES as error:
            raise unloadable(str(source), error) from error
        text, size = config.get_text_config(), dtype.itemsize
        heads = text.num_attention_heads
        head_size = getattr(text, "head_dim", None) or text.hidden_size // heads
        key_heads = getattr(text, "num_key_value_heads", None) or heads
        head = model.get_output_embeddings()
        layers = {name: one for name, one in model.named_modules() if isinstance(one, nn.Linear) and one is not head}
        rank, targets = options.highest_rank, options.targets
        adapted = [one for name, one in layers.items() if name.rpartition(".")[2] in targets]
        floats = (
            0 if size == _FLOAT_BYTES else _FLOAT_BYTES * sum(one.in_features for one in adapted)
        )  # inputs, for the adapters
        parameters = sum(one.numel() for one in model.parameters())
        blocks = [size * sum(one.numel() for one in matrices) for matrices in block_matrices(model)]
        return cls(
            parameters=parameters,
            weights=parameters * size,
            adapter=_FLOAT_BYTES * sum(rank * (one.in_features + one.out_features) for one in adapted),
            cached=2 * size * text.num_hidden_layers * key_heads * head_size,
            activation=size * sum(one.in_features + one.out_features for one in layers.values()) + floats,
            layer_input=size * text.num_hidden_layers * text.hidden_size,
            logits=_FLOAT_BYTES * text.vocab_size,
            blocks=sum(blocks),
            widest_block=max(blocks, default=0),
        )


def free_on(options: ModelOptions) -> int | None:
    """Bytes that are free on the device that the options name; None: unknown."""
    device = device_of(options.device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
