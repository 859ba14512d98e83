"""Log-probabilities by transformers and PEFT alone, to compare with what the endpoint returns."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from mas.observe.files import write_directory_atomic
from mas.serving.adapter_files import to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel

LogProbs = Callable[[str, Sequence[int]], torch.Tensor]
"""(adapter, L ids) -> log-probabilities [L - 1, V], at every place but the first."""


def plain_logprobs(base: BaseModel, adapters: Mapping[str, AdapterWeights], folder: Path) -> LogProbs:
    """The adapters are written to the folder and read from there; nothing of mas computes."""
    for name, weights in adapters.items():
        write_directory_atomic(folder / name, to_files(weights, base.origin))
    first, *others = adapters
    bare = AutoModelForCausalLM.from_pretrained(base.name, dtype=torch.float32)
    model: Any = PeftModel.from_pretrained(bare, folder / first, adapter_name=first)
    for name in others:
        model.load_adapter(folder / name, adapter_name=name)

    def logprobs(adapter: str, ids: Sequence[int]) -> torch.Tensor:
        model.set_adapter(adapter)
        with torch.no_grad():
            return torch.log_softmax(model(input_ids=torch.tensor([list(ids)])).logits[0, :-1].float(), -1)

    return logprobs
