"""However a batch goes through the model, loss and gradients are the same: all switches, three architectures."""

import itertools
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from parts import make_turn
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PreTrainedConfig, Qwen3Config

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import AdapterOptions, LearnerOptions, LoraOptions, ModelOptions
from mas.core.records import Turn
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel, load_base, tiny_tokenizer
from mas.training.batch import TrainRow, train_rows
from mas.training.learner import Learner, MetricAccumulator

ROLES = ("planner", "executor", "verifier")
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "qwen3, tied": Qwen3Config(**SMALL, vocab_size=70, tie_word_embeddings=True),
    "llama, untied": LlamaConfig(**SMALL, vocab_size=70, tie_word_embeddings=False),
    "mistral, a window of 9": MistralConfig(**SMALL, vocab_size=70, sliding_window=9),
}
ADAPTERS = {
    "executor": AdapterOptions(rank=3, alpha=5.0, targets=("q_proj", "down_proj")),
    "verifier": AdapterOptions(rank=9, targets=("v_proj", "gate_proj", "up_proj")),
}
SWITCHES = [
    dict(zip(("pack", "share_prompts", "join_turns"), on, strict=True)) for on in itertools.product((0, 1), repeat=3)
]


@pytest.fixture(scope="module", params=CONFIGS)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> BaseModel:
    folder: Path = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(CONFIGS[request.param]).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return load_base(ModelOptions(path=str(folder), lora=LoraOptions(rank=4), adapters=ADAPTERS))


def loud(base: BaseModel, name: str) -> AdapterWeights:
    weights = base.bank.create(base.options.lora_of(name), ROLES.index(name))
    generator = torch.Generator().manual_seed(ROLES.index(name))
    for _, b_OR in weights.pairs.values():
        b_OR.copy_(torch.randn(b_OR.shape, generator=generator) * 0.2)
    return weights


def rows_of() -> list[TrainRow]:
    """Three roles, three turns each that continue one another, four candidates a turn, some equal, some of one token;
    prompts with a common beginning; other temperatures and choices."""
    draw = random.Random(0)
    turns: list[Turn] = []
    for role, group in itertools.product(ROLES, range(2)):
        prompt = (5, 6, 7, 8 + group, *(draw.randrange(70) for _ in range(draw.randint(2, 9))))
        for turn in range(3):
            for _ in range(4):
                completion = tuple(draw.choice((8, 9)) for _ in range(draw.randint(1, 6)))
                turns.append(
                    make_turn(
                        role=role,
                        prompt_ids=prompt,
                        completion_ids=completion,
                        logprobs=tuple(draw.uniform(-3, -1) for _ in completion),
                        temperature=draw.choice((1.0, 0.7)),
                        choices=draw.choice(((), (8, 9, 10))),
                    )
                )
            prompt += (*completion, 11 + turn, 12)
    advantages = [draw.uniform(-1, 1) for _ in turns]
    adapter_of = {name: name for name in ROLES}
    return train_rows(turns, advantages, adapter_of, aggregation="seq_mean_token_mean", max_length=8)


def learned(base: BaseModel, **options: Any) -> tuple[float, dict[str, Tensor], int]:
    """Loss, gradients by adapter, and tokens fed."""
    adapters = {name: loud(base, name) for name in ROLES}
    learner = Learner(base, adapters, LearnerOptions(**options), LossOptions(kl=0.1, entropy=0.05))
    rows = rows_of()
    loss = learner.accumulate(rows, defaultdict(MetricAccumulator))
    gradients = {
        name: torch.cat([tensor.grad.flatten() for tensor in weights.parameters() if tensor.grad is not None])
        for name, weights in learner.adapters.items()
    }
    return loss, gradients, sum(batch.tokens for batch in learner.micro_batches(rows))


@pytest.fixture(scope="module")
def plain(base: BaseModel) -> tuple[float, dict[str, Tensor], int]:
    """One row after the other, nothing shared, all logits at once."""
    return learned(base, pack=False, share_prompts=False, join_turns=False, logit_chunk=0, micro_batch_tokens=1)


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda switches: "".join(map(str, switches.values())))
@pytest.mark.matrix("recompute_layers", [False, True], default=[True])
def test_all_switches_give_one_loss_and_one_gradient(
    base: BaseModel, plain: tuple[float, dict[str, Tensor], int], switches: dict[str, Any], recompute_layers: bool
) -> None:
    loss, wanted, _ = plain
    for chunk, budget in ((5, 50), (0, 10**5))[: 1 if recompute_layers else 2]:
        found, gradients, _ = learned(
            base, **switches, recompute_layers=recompute_layers, logit_chunk=chunk, micro_batch_tokens=budget
        )
        assert found == pytest.approx(loss, rel=1e-5)
        for name in ROLES:
            assert wanted[name].norm() > 1e-3
            assert (gradients[name] - wanted[name]).norm() <= 1e-5 * wanted[name].norm(), name


def test_every_switch_saves_tokens(base: BaseModel) -> None:
    fed = {tuple(switches.values()): learned(base, **switches, micro_batch_tokens=10**5)[2] for switches in SWITCHES}
    for on, tokens in fed.items():
        for place in range(3):
            if not on[place]:
                more = (*on[:place], 1, *on[place + 1 :])
                assert fed[more] < tokens, (on, more)
