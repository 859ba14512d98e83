"""The bases that are served: random weights from a seed, Qwen3 architecture, the tiny tokenizer."""

from pathlib import Path

from transformers.utils.logging import disable_progress_bar

from benchmarks.serving.options import SIZES
from mas.config.options import ModelOptions
from mas.serving.model import BaseModel, load_base, tiny_model, tiny_tokenizer


def make_base(size: str, directory: Path, *, seed: int, threads: int) -> BaseModel:
    """Write a model of this size to the directory and load it from there."""
    shape = SIZES[size].model_copy(update={"seed": seed})
    disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers annotates in part
    tiny_model(shape).save_pretrained(directory)
    tiny_tokenizer().save_pretrained(directory)
    return load_base(ModelOptions(path=str(directory), threads=threads))
