"""Models of several architectures: what is decoded in a running batch is what one forward pass computes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from loud import loud_adapter
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen3Config

from mas.config.options import LoraOptions, ModelOptions
from mas.core.engine import Generation, Request, Sampling
from mas.serving.model import BaseModel, load_base
from mas.serving.tiny import tiny_tokenizer
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.weights import AdapterWeights

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
CONFIGS = {
    "qwen3": Qwen3Config,
    "llama, a head each": lambda **kw: LlamaConfig(**(kw | {"num_key_value_heads": 4})),
    "mistral, a window of 7": lambda **kw: MistralConfig(**kw, sliding_window=7),
    "gemma3, windows of 5 in two layers of three": lambda **kw: Gemma3TextConfig(
        **kw, sliding_window=5, layer_types=["sliding_attention", "full_attention", "sliding_attention"]
    ),
}


@pytest.fixture(scope="module", params=CONFIGS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    folder: Path = tmp_path_factory.mktemp("model")
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = CONFIGS[request.param](vocab_size=len(tokenizer), initializer_range=0.2, **SMALL)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_base(ModelOptions(path=str(folder)))


def request(number: int, adapter: str | None) -> Request:
    """Prompts of 3 to 32 tokens, completions of 1 to 40."""
    prompt = tuple(5 + (number * 7 + place) % 60 for place in range(3 + number * 11 % 30))
    return Request(
        prompt_ids=prompt, sampling=Sampling(max_tokens=1 + number * 13 % 40), seeds=(number, 99), adapter=adapter
    )


async def asked(engine: TransformersEngine, number: int, adapter: str | None) -> tuple[Request, tuple[Generation, ...]]:
    """A request that comes when some of those before it are answered already."""
    one = request(number, adapter)
    if number > 6:
        await engine.generate(request(number - 6, "a"))
    return one, await engine.generate(one)


async def test_what_is_decoded_among_others_scores_as_in_one_forward_pass(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    options = LoraOptions(rank=4, alpha=4.0, targets=("q_proj", "down_proj"))
    other = base.bank.create(options, 5)
    for _, b_OR in other.pairs.values():
        b_OR.add_(0.3)
    for name, weights in {"a": loud_adapter(base, 1), "b": loud_adapter(base, 2), "c": other}.items():
        await engine.store.publish(name, weights)
    speakers = (None, "a", "b", "c")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(asked(engine, n, speakers[n % 4]), name=str(n)) for n in range(24)]
    for task in tasks:
        one, generations = task.result()
        for generation in generations:
            assert len(generation.token_ids) == one.sampling.max_tokens
            scores = await engine.score(one.prompt_ids, generation.token_ids, one.adapter)
            assert generation.logprobs == pytest.approx(scores, abs=1e-4)
    await engine.close()


def test_adapters_of_other_ranks_and_layers_mix_in_a_stack(base: BaseModel) -> None:
    kinds: list[AdapterWeights | None] = [loud_adapter(base, 1), None]
    for rank, targets in ((3, ("q_proj", "v_proj")), (5, ("up_proj",))):
        weights = base.bank.create(LoraOptions(rank=rank, alpha=7.0, targets=targets), rank)
        for _, b_OR in weights.pairs.values():
            b_OR.add_(0.5)
        kinds.append(weights)
    rows = [kinds[number] for number in (2, 0, 1, 3, 0, 2)]
    ids = torch.arange(5, 11)[:, None]
    with torch.inference_mode():
        with base.bank.stacking(rows):
            mixed = base.model(input_ids=ids).logits
        for row, weights in enumerate(rows):
            with base.bank.routing([weights]):
                alone = base.model(input_ids=ids[row : row + 1]).logits[0]
            assert torch.allclose(mixed[row], alone, atol=1e-4)
