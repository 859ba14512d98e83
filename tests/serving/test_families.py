"""Families of causal language models, tiny and with random weights: each works as the model itself, or is refused."""

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from loud import loud_adapter
from parts import make_turn
from transformers import AutoConfig, AutoModelForCausalLM

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions, LoraOptions, ModelOptions
from mas.core.engine import Request, Sampling
from mas.core.errors import ModelError
from mas.serving.forward import _shares
from mas.serving.model import BaseModel, load_base, tiny_tokenizer
from mas.serving.transformers_engine import TransformersEngine
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.step_metrics import MetricAccumulator

DOCS = Path(__file__).parents[2] / "docs" / "serving.md"
SMALL: dict[str, Any] = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48},
    **{"num_key_value_heads": 2, "max_position_embeddings": 256, "initializer_range": 0.2},
    **{"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None},
}
LATENT = {
    **{"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8},
    **{"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1},
    "moe_intermediate_size": 16,
}
OWN: dict[str, dict[str, Any]] = {
    **{name: {"head_dim": 8} for name in ("gemma", "gemma2", "gemma3_text", "qwen3", "qwen3_moe", "gpt_oss")},
    "gemma2 without softcap": {"head_dim": 8, "attn_logit_softcapping": None},
    "deepseek_v3": LATENT,
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "falcon with alibi": {"alibi": True},
    "qwen2_moe": {"moe_intermediate_size": 16, "shared_expert_intermediate_size": 24, "num_experts": 4},
}
TARGETS = {"phi3": "qkv_proj", "deepseek_v3": "q_b_proj", "gpt2": "c_attn"} | dict.fromkeys(
    ("gpt_neox", "bloom", "falcon", "falcon with alibi"), "query_key_value"
)
WORKS = (
    *(
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "gemma",
        "gemma2 without softcap",
        "gemma3_text",
        "phi",
        "phi3",
    ),
    *("olmo2", "smollm3", "granite", "starcoder2", "cohere", "exaone4", "glm4", "mixtral", "gpt_neox", "opt"),
)
REFUSED = {
    "gemma2": "'softcap', which torch's does not compute",
    "deepseek_v3": "cannot use models of the architecture 'deepseek_v3'",
    "bloom": "cannot use models of the architecture 'bloom'",
    "falcon with alibi": "cannot use models of the architecture 'falcon'",
    "gpt2": "name no linear layer",
    "gpt_oss": "when it is packed than alone",
    "stablelm": "when it is packed than alone",
}


def made(name: str, folder: Path, targets: tuple[str, ...] = (), **more: Any) -> BaseModel:
    """A model of a family."""
    tokenizer = tiny_tokenizer()
    options = {**SMALL, **OWN.get(name, {}), **more}
    config = AutoConfig.for_model(name.split()[0], **options, vocab_size=len(tokenizer))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return load_base(
        ModelOptions(path=str(folder), lora=LoraOptions(targets=targets or (TARGETS.get(name, "q_proj"),)))
    )


def learner(base: BaseModel, **options: Any) -> Learner:
    adapters = {"a": base.bank.create(base.options.lora, 0)}
    return Learner(base, adapters, LearnerOptions(**options), LossOptions())


def start(name: str, folder: Path) -> None:
    """All that is checked of a model before it is sampled from and trained."""
    base = made(name, folder)
    TransformersEngine(base)
    learner(base)


@pytest.mark.parametrize("name", WORKS)
def test_a_family_that_works_decodes_and_learns_as_the_model_itself(name: str, tmp_path: Path) -> None:
    start(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("opt", ("q_proj", "fc1", "fc2")),
        ("qwen2_moe", ("q_proj", "up_proj", "down_proj")),  # of its shared expert
        ("llama", ("q_proj", "up_proj", "down_proj")),
    ],
)
async def test_layers_that_get_the_tokens_of_all_rows_as_one_list_have_adapters(
    name: str, targets: tuple[str, ...], tmp_path: Path
) -> None:
    base = made(name, tmp_path, targets=targets)
    adapters = {adapter: loud_adapter(base, seed) for seed, adapter in enumerate("ab")}
    engine = TransformersEngine(base)
    try:
        for adapter, weights in adapters.items():
            await engine.store.publish(adapter, weights)
        sampling = Sampling(max_tokens=4)
        requests = [
            Request(prompt_ids=prompt, sampling=sampling, seeds=(1, 2), adapter=adapter)
            for prompt in ((5, 6, 7, 8, 9), (7,), (9, 5))
            for adapter in "ab"
        ]
        drawn = await asyncio.gather(*(engine.generate(request) for request in requests))
    finally:
        await engine.close()
    turns = [
        (make_turn(prompt_ids=request.prompt_ids, completion_ids=one.token_ids, logprobs=one.logprobs), request.adapter)
        for request, found in zip(requests, drawn, strict=True)
        for one in found
    ]
    rows = [TrainRow(turn, str(adapter), 1.0, 1.0) for turn, adapter in turns]
    learned = Learner(base, adapters, LearnerOptions(), LossOptions()).logprobs(rows)
    bare = Learner(base, adapters, LearnerOptions(), LossOptions()).logprobs(rows, is_reference=True)
    for turn, _ in turns:
        assert learned[id(turn)] == pytest.approx(turn.logprobs, abs=2e-5)
    assert max(abs(learned[id(turn)][0] - bare[id(turn)][0]) for turn, _ in turns) > 0.1


@pytest.mark.parametrize("name", ["opt", "llama", "gpt_neox"])
def test_layers_that_are_computed_again_have_no_dropout_and_the_same_gradients(name: str, tmp_path: Path) -> None:
    base = made(name, tmp_path)
    turns = [make_turn(prompt_ids=(5, 6, place), completion_ids=(7, 8, place)) for place in range(4, 12)]
    rows = [TrainRow(turn, "a", 1.0, 0.1) for turn in turns]
    found = []
    for is_again in (False, True):
        options = LearnerOptions(recompute_layers=is_again)
        learner = Learner(base, {"a": loud_adapter(base, 0)}, options, LossOptions())
        loss = learner.accumulate(rows, defaultdict(MetricAccumulator))
        gradients = [tensor.grad for tensor in learner.adapters["a"].parameters()]
        found.append((loss, torch.cat([one.flatten() for one in gradients if one is not None])))
    assert found[1][0] == pytest.approx(found[0][0], rel=1e-5)
    assert (found[0][1] - found[1][1]).norm() <= 1e-5 * found[0][1].norm() > 0
    assert not any(module.training for module in base.model.modules())


@pytest.mark.parametrize("name", WORKS)
def test_a_family_that_works_reads_what_prompts_begin_with_once(name: str, tmp_path: Path) -> None:
    assert _shares(made(name, tmp_path))


@pytest.mark.parametrize("name", REFUSED)
def test_a_family_that_does_not_work_is_one_clear_error_at_the_start(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as refused:
        start(name, tmp_path)
    assert REFUSED[name] in str(refused.value)


def test_a_softcap_is_not_left_out_without_packing_either(tmp_path: Path) -> None:
    apart = {"pack": False, "share_prompts": False, "join_turns": False}
    with pytest.raises(ModelError, match="which torch's does not compute"):
        learner(made("gemma2", tmp_path), **apart)


def test_an_attention_that_leaves_out_a_part_is_found_by_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.serving.attention._IGNORED", ())
    with pytest.raises(ModelError, match=r"'gemma2'.*differ from the model's own by"):
        TransformersEngine(made("gemma2", tmp_path, attn_logit_softcapping=0.1))


def test_the_page_lists_every_family_that_was_tried() -> None:
    page = DOCS.read_text()
    works, refused = (
        next(line for line in page.splitlines() if line.startswith(f"| {word}")) for word in ("works", "refused")
    )
    assert [name for name in WORKS if f"`{name}`" not in works] == []
    assert [name for name in REFUSED if f"`{name}`" not in refused] == []
