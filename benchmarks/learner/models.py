"""The base of a workload: a pretrained model, or its shape with random weights."""

from pathlib import Path

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.utils.logging import disable_progress_bar

from benchmarks.learner.workload import WorkloadOptions
from mas.config.options import ModelOptions
from mas.serving.model import BaseModel, load_base, tiny_tokenizer
from mas.serving.model_sources import why_not_cached


def make_base(workload: WorkloadOptions, directory: Path, *, seed: int, threads: int) -> BaseModel:
    """Load the workload's pretrained model; without one, write a model of its shape to the directory and load that."""
    if workload.model is None:
        _write_random(workload, directory, seed)
    return load_base(
        ModelOptions(
            path=workload.model or str(directory),
            lora=workload.lora,
            dtype=workload.dtype,
            device=workload.device,
            threads=threads,
        )
    )


def why_absent(workload: WorkloadOptions) -> str:
    """Why the workload's model is not there; empty: it is, or is made on the spot."""
    return "" if workload.model is None else why_not_cached()


def _write_random(workload: WorkloadOptions, directory: Path, seed: int) -> None:
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates in part
    model = _random_model(workload, seed).to(getattr(torch, workload.dtype))
    model.save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)


def _random_model(workload: WorkloadOptions, seed: int) -> Qwen3ForCausalLM:
    shape = workload.shape
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_size,
        max_position_embeddings=workload.longest,
        initializer_range=shape.spread,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers annotates in part
