"""Models are packed only if they compute packed what they compute alone; and in bfloat16 as nearly as it can be."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from loud import loud_adapter
from rows import ROLES, rows_of
from test_equal_gradients import SMALL
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    CohereConfig,
    Gemma2Config,
    GraniteConfig,
    Phi3Config,
    PreTrainedConfig,
    Qwen3Config,
)

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions, LoraOptions, ModelOptions
from mas.core.errors import ModelError
from mas.serving import attention
from mas.serving.model import BaseModel, load_base, tiny_tokenizer
from mas.training import packing_check
from mas.training.learner import Learner, MetricAccumulator

APART = {"pack": False, "share_prompts": False, "join_turns": False}
SHAPE = SMALL | {"vocab_size": 70}
WINDOWED = SHAPE | {"attn_logit_softcapping": None, "final_logit_softcapping": 0.5, "sliding_window": 6}


def base_of(config: PreTrainedConfig, folder: Path, *targets: str, **options: Any) -> BaseModel:
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    lora = LoraOptions(targets=targets or ("q_proj", "down_proj"))
    return load_base(ModelOptions(path=str(folder), lora=lora, **options))


def learner_of(base: BaseModel, **options: Any) -> Learner:
    adapters = {name: loud_adapter(base, seed) for seed, name in enumerate(ROLES)}
    return Learner(base, adapters, LearnerOptions(**options), LossOptions())


def gradient(learner: Learner) -> Tensor:
    learner.accumulate(rows_of(), defaultdict(MetricAccumulator))
    found = [tensor.grad for weights in learner.adapters.values() for tensor in weights.parameters()]
    return torch.cat([tensor.flatten() for tensor in found if tensor is not None])


@pytest.mark.parametrize(
    ("config", "targets"),
    [
        (Phi3Config(**SHAPE), ("qkv_proj", "gate_up_proj")),
        (GraniteConfig(**SHAPE, logits_scaling=0.1, attention_multiplier=0.2), ()),
        (CohereConfig(**SHAPE, logit_scale=4.0), ()),
        (Gemma2Config(**WINDOWED, layer_types=["sliding_attention", "full_attention"]), ()),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_other_heads_and_layers_pass_and_train_the_same_packed_or_apart(
    config: PreTrainedConfig, targets: tuple[str, ...], tmp_path: Path
) -> None:
    base = base_of(config, tmp_path, *targets)
    packed, apart = gradient(learner_of(base)), gradient(learner_of(base, **APART))
    assert (packed - apart).norm() <= 1e-5 * apart.norm()
    assert apart.norm() > 0


def test_attention_that_does_not_know_the_layout_is_refused(tmp_path: Path) -> None:
    base = base_of(Qwen3Config(**SHAPE), tmp_path)
    base.model.set_attn_implementation("eager")
    with pytest.raises(ModelError, match=r"Qwen3ForCausalLM computes other log-probabilities .* learner\.pack=false"):
        learner_of(base)
    assert gradient(learner_of(base, **APART)).norm() > 0


def test_attention_that_computes_something_else_is_refused(tmp_path: Path) -> None:
    base = base_of(Gemma2Config(**WINDOWED | {"attn_logit_softcapping": 5.0}), tmp_path)
    with pytest.raises(ModelError, match="its attention has 'softcap', which torch's does not compute"):
        learner_of(base)


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", r"0\.0001"), ("bfloat16", r"0\.\d+")])
def test_a_leak_between_sequences_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, allowed: str
) -> None:
    def leaking(query: Tensor, key: Tensor, value: Tensor, layout: Any, **options: Any) -> Tensor:
        layout.ends[:] = [len(layout.ends)] * len(layout.ends)
        layout.ends_M[:] = len(layout.ends)
        for known in ("spans", "trees", "parts"):  # what was worked out from the right ends
            vars(layout).pop(known, None)
        return attend(query, key, value, layout, **options)

    base = base_of(Qwen3Config(**SHAPE | {"initializer_range": 0.3}), tmp_path, dtype=dtype)
    attend = attention.tree_attention
    monkeypatch.setattr(attention, "tree_attention", leaking)
    with pytest.raises(ModelError, match=rf"nats a token, at most {allowed} is rounding"):
        learner_of(base)


def test_in_bfloat16_the_tolerance_is_three_times_what_rounding_makes_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = base_of(Qwen3Config(**SHAPE | {"initializer_range": 0.3}), tmp_path, dtype="bfloat16")
    seen: list[Tensor] = []
    score = packing_check._alone
    monkeypatch.setattr(packing_check, "_alone", lambda *words: seen.append(score(*words) + 0.05) or seen[-1])
    found = packing_check.tolerance_of(base, packing_check.short_rows(base))
    assert 0.12 < found < 0.35
    monkeypatch.setattr(packing_check, "_alone", lambda *words: score(*words) + 1.0)
    with pytest.raises(ModelError, match=r"could not be checked\. Use model\.dtype=float32"):
        packing_check.tolerance_of(base, packing_check.short_rows(base))


def test_a_head_that_is_an_adapters_target_is_refused(tmp_path: Path) -> None:
    base = base_of(Qwen3Config(**SHAPE), tmp_path, "q_proj", "lm_head")
    with pytest.raises(ModelError, match="the output layer of Qwen3ForCausalLM is no plain linear layer"):
        learner_of(base)


def test_layers_that_cannot_be_computed_again_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_of(Qwen3Config(**SHAPE), tmp_path)
    learner = learner_of(base, recompute_layers=True)
    monkeypatch.setattr("mas.training.batch_tensors.GradientCheckpointingLayer", Gemma2Config)
    with pytest.raises(ModelError, match=r"learner\.recompute_layers=false"):
        gradient(learner)


def test_after_layers_were_computed_again_the_model_serves_as_before(tmp_path: Path) -> None:
    base = base_of(Qwen3Config(**SHAPE), tmp_path)
    assert gradient(learner_of(base, recompute_layers=True)).norm() > 0
    assert not any(module.training for module in base.model.modules())
    assert not base.model.is_gradient_checkpointing
    assert not any(module._forward_hooks for module in base.model.modules())


@pytest.mark.parametrize(("recompute_layers", "times"), [(False, 1), (True, 2)])
def test_layers_are_computed_again_in_backward_only_if_asked(
    recompute_layers: bool, times: int, tmp_path: Path
) -> None:
    base = base_of(Qwen3Config(**SHAPE), tmp_path)
    learner = learner_of(base, recompute_layers=recompute_layers)
    attention, seen = base.model.get_submodule("model.layers.0.self_attn"), []
    attention.register_forward_hook(lambda *call: seen.append(torch.is_grad_enabled()))
    gradient(learner)
    assert seen == [True] * times * len(learner.micro_batches(rows_of()))


def test_bfloat16_computes_nearly_what_float32_does_with_adapters_and_optimisers_in_float32(tmp_path: Path) -> None:
    exact = gradient(learner_of(base_of(Qwen3Config(**SHAPE), tmp_path)))
    learner = learner_of(base_of(Qwen3Config(**SHAPE), tmp_path, dtype="bfloat16"))
    rough = gradient(learner)
    assert rough.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(rough, exact, dim=0) > 0.99
    learner.step(rows_of())
    states = [state for optimiser in learner.optimisers.values() for state in optimiser.state.values()]
    assert states
    assert {value.dtype for state in states for value in state.values()} == {torch.float32}
