"""Models of several architectures: what is decoded in a running batch is what one forward pass computes."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from loud import loud_adapter
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen3Config

from mas.config.options import LoraOptions, ModelOptions
from mas.core.engine import Generation, Request, Sampling
from mas.core.errors import ModelError
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.kv_cache import Attention
from mas.serving.model import BaseModel, load_base, tiny_tokenizer
from mas.serving.transformers_engine import TransformersEngine

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
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
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


def test_a_bfloat16_base_adds_float32_adapters_in_stacks_as_in_slices(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    torch.manual_seed(0)
    config = Qwen3Config(vocab_size=len(tokenizer), initializer_range=0.2, **SMALL)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    low = load_base(ModelOptions(path=str(tmp_path), dtype="bfloat16"))
    rows = [loud_adapter(low, 1), None, loud_adapter(low, 2), loud_adapter(low, 1)]
    ids = torch.arange(5, 9)[:, None]
    with torch.inference_mode():
        with low.bank.stacking(rows):
            stacked = low.model(input_ids=ids).logits
        with low.bank.routing(rows):
            sliced = low.model(input_ids=ids).logits
        bare = low.model(input_ids=ids).logits
    assert torch.allclose(stacked, sliced, atol=0.1)
    assert torch.equal(stacked[1], bare[1])
    assert all((stacked[row] - bare[row]).abs().max() > 0.5 for row in (0, 2, 3))


def test_layers_that_attend_in_chunks_are_refused() -> None:
    config = LlamaConfig(**SMALL)
    config.layer_types, config.attention_chunk_size = ["chunked_attention"] * 3, 4
    with pytest.raises(ModelError, match=r"'llama' model has chunked_attention; use engine=vllm"):
        Attention.of(SimpleNamespace(config=config))


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A model directory."""
    tokenizer = tiny_tokenizer()
    AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=len(tokenizer), **SMALL)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def change(file: Path, **values: object) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize("word", ["evil-org/evil-kernel", "flash_attention_2", "paged|flex_attention", "eager"])
def test_a_model_does_not_choose_the_code_of_its_attention(llama: Path, word: str) -> None:
    usual = load_base(ModelOptions(path=str(llama))).model.config._attn_implementation
    change(llama / "config.json", attn_implementation=word)
    assert load_base(ModelOptions(path=str(llama))).model.config._attn_implementation == usual == "mas_grouped"


def test_a_package_that_a_model_needs_and_is_not_there_is_one_error(llama: Path) -> None:
    change(llama / "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True})
    with pytest.raises(ModelError, match=r"cannot be loaded as a causal language model: .*bitsandbytes"):
        load_base(ModelOptions(path=str(llama)))


def test_weights_that_are_cut_off_are_one_error(llama: Path) -> None:
    weights = llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"cannot be loaded as a causal language model: .*not fully covered"):
        load_base(ModelOptions(path=str(llama)))


def test_a_model_directory_with_an_adapter_is_refused(llama: Path) -> None:
    (llama / "adapter_config.json").write_text('{"base_model_name_or_path": "evil-org/evil-base", "peft_type": "LORA"}')
    with pytest.raises(ModelError, match=r"holds an adapter \(adapter_config.json\).* merge the adapter"):
        load_base(ModelOptions(path=str(llama)))


@pytest.mark.parametrize(("kind", "longest"), [("longrope", 64), ("llama3", 256)])
def test_texts_are_no_longer_than_positions_stay_what_they_are(tmp_path: Path, kind: str, longest: int) -> None:
    rope = {"rope_type": kind, "rope_theta": 1e4, "original_max_position_embeddings": 64, "factor": 4.0}
    more = {"longrope": {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}, "llama3": LLAMA3}[kind]
    tokenizer = tiny_tokenizer()
    config = LlamaConfig(vocab_size=len(tokenizer), rope_parameters=rope | more, **SMALL)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert load_base(ModelOptions(path=str(tmp_path))).limits.context == longest
