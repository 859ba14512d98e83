"""Loading the one base model of all roles, from a directory, a hub id, or the tiny base that mas makes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from mas.config.options import ModelOptions
from mas.core.errors import ModelError
from mas.serving.attention import group_queries
from mas.serving.check import Limits
from mas.serving.lora import AdapterBank
from mas.serving.slots import Attention
from mas.serving.tokenizer import HubTokenizer


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A frozen base with its adapter bank and tokenizer. `name` is where it came from."""

    name: str
    model: PreTrainedModel
    bank: AdapterBank
    tokenizer: HubTokenizer
    options: ModelOptions
    limits: Limits
    attention: Attention
    stop_ids: tuple[int, ...]

    @property
    def chats(self) -> bool:
        """Whether roles speak through the chat template (True) or compact prompts."""
        if self.options.prompts == "auto":
            return self.tokenizer.has_chat
        return self.options.prompts == "chat"


def load_base(options: ModelOptions, path: str | Path | None = None) -> BaseModel:
    """Load a causal language model; `path` overrides `options.path` (where the tiny base lies).

    Raises:
        ModelError: the path is no model directory, or the hub id cannot be had.
    """
    source = str(path or options.path)
    _check_source(source)
    device = _device(options.device)
    disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        config = AutoConfig.from_pretrained(source)
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=getattr(torch, options.dtype))
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"model {source!r} cannot be loaded as a causal language model: {first}") from error
    model.to(device).eval()
    group_queries(model)
    stop = model.generation_config.eos_token_id
    stop_ids = tuple(stop) if isinstance(stop, list) else (() if stop is None else (int(stop),))
    text_config = config.get_text_config()
    longest = getattr(text_config, "max_position_embeddings", None) or options.max_context
    return BaseModel(
        name=source,
        model=model,
        bank=AdapterBank(model, options.targets),
        tokenizer=HubTokenizer(tokenizer),
        options=options,
        attention=Attention.of(model),
        limits=Limits(int(text_config.vocab_size), min(longest, options.max_context)),
        stop_ids=stop_ids,
    )


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise ModelError("device=cuda, but torch sees no CUDA device here; use device=auto or device=cpu")
    return torch.device(name)


def _check_source(source: str) -> None:
    path = Path(source)
    looks_local = path.exists() or source.startswith((".", "/", "~")) or source.count("/") > 1
    if not looks_local:
        return
    wanted = "a directory with config.json, the weights (*.safetensors) and the tokenizer files"
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise ModelError(f"model directory {source!r} {problem}; needed: {wanted}, or a hub id, or 'tiny'")
    if not (path / "config.json").is_file():
        held = sorted(child.name for child in path.iterdir())[:8]
        raise ModelError(f"model directory {source!r} has no config.json (it holds {held}); needed: {wanted}")
