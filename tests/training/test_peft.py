"""Grouped LoRA against PEFT itself: the same logits, the same loss, the same gradients, the same files."""

import gc
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from conftest import BaseFor
from loud import loud_adapter
from parts import SKILLED, make_turn
from peft import LoraConfig, PeftModel, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions
from mas.core.errors import CheckpointError
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_files import from_directory, from_files, to_files
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import BaseModel
from mas.serving.model_sources import Origin
from mas.training.batch import TrainRow, train_rows
from mas.training.learner import Learner, MetricAccumulator

NAMES = ("planner", "executor")
PROMPTS = {"planner": ((19, 3, 4, 77), (19, 5, 6, 77)), "executor": ((14, 5, 6, 3, 4, 8, 70, 77), (14, 9, 77))}


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.fixture
def peft_model(base: BaseModel, tmp_path: Path) -> Iterator[Any]:
    """PEFT on the same base with both adapters loaded from our files, in training mode."""
    for seed, name in enumerate(NAMES):
        write_directory_atomic(tmp_path / name, to_files(loud_adapter(base, seed), base.origin))
    plain = AutoModelForCausalLM.from_pretrained(base.name, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, tmp_path / NAMES[0], adapter_name=NAMES[0], is_trainable=True)
    model.load_adapter(tmp_path / NAMES[1], adapter_name=NAMES[1], is_trainable=True)
    yield model
    del model, plain
    gc.collect()


def rows_of(base: BaseModel) -> list[TrainRow]:
    """Rows of two roles: different lengths, shared prompts, off-policy by up to 0.3 nats."""
    turns = []
    for role, prompts in PROMPTS.items():
        for prompt in prompts:
            for completion in ((7,), (8, 9), (8, 9, 10), (8, 11)):
                turns.append(make_turn(role=role, prompt_ids=prompt, completion_ids=completion))
    names = dict(zip(NAMES, [loud_adapter(base, seed) for seed in range(2)], strict=True))
    advantages, behaved = [], []
    for index, turn in enumerate(turns):
        with torch.no_grad():
            logits_LV = completion_logits(
                base.model, base.bank, [ScoredRow(turn.prompt_ids, turn.completion_ids, names[turn.role])]
            )[0]
        own = torch.log_softmax(logits_LV, -1).gather(-1, torch.tensor(turn.completion_ids)[:, None])[:, 0]
        logprobs = tuple((own + 0.3 * ((index % 5) - 2) / 2).tolist())
        behaved.append(
            make_turn(role=turn.role, prompt_ids=turn.prompt_ids, completion_ids=turn.completion_ids, logprobs=logprobs)
        )
        advantages.append((-1.0) ** index * (0.5 + index / 10))
    adapter_of = {name: name for name in NAMES}
    return train_rows(behaved, advantages, adapter_of, aggregation="seq_mean_token_mean", max_length=16)


def learner_of(base: BaseModel, **loss: Any) -> Learner:
    adapters = {name: loud_adapter(base, seed) for seed, name in enumerate(NAMES)}
    return Learner(base, adapters, LearnerOptions(), LossOptions(**{"entropy": 0.0, "importance_cap": None} | loss))


def our_gradients(learner: Learner, rows: list[TrainRow]) -> dict[str, Tensor]:
    learner.accumulate(rows, defaultdict(MetricAccumulator))
    return {
        f"{layer}.{part}.{name}": tensor.grad
        for name, weights in learner.adapters.items()
        for layer, pair in weights.pairs.items()
        for part, tensor in zip("AB", pair, strict=True)
    }


def peft_gradients(model: Any, rows: list[TrainRow]) -> dict[str, Tensor]:
    """One row after the other, without padding, the clipped loss written out once more."""
    for row in rows:
        model.set_adapter(row.adapter)
        turn = row.turn
        ids = torch.tensor([[*turn.prompt_ids, *turn.completion_ids]])
        logits = model(input_ids=ids, use_cache=False).logits[0, len(turn.prompt_ids) - 1 : -1]
        logprobs = torch.log_softmax(logits, -1)[range(len(turn.completion_ids)), list(turn.completion_ids)]
        rho = (logprobs - torch.tensor(turn.logprobs)).exp()
        surrogate = torch.minimum(rho * row.advantage, rho.clamp(0.8, 1.2) * row.advantage)
        loss = -surrogate if row.advantage >= 0 else torch.minimum(-surrogate, torch.tensor(-3.0 * row.advantage))
        # Each role's loss: the mean over its rows of the mean over their tokens.
        (loss.mean() / sum(other.adapter == row.adapter for other in rows)).backward()
    found = {}
    for key, parameter in model.named_parameters():
        layer, _, rest = key.removeprefix("base_model.model.").partition(".lora_")
        if rest and parameter.grad is not None:
            part, name, _ = rest.split(".")
            found[f"{layer}.{part}.{name}"] = parameter.grad
    return found


def test_gradients_equal_those_of_peft_row_by_row(base: BaseModel, peft_model: Any) -> None:
    rows = rows_of(base)
    # PEFT's in double precision, so that the difference is the rounding of ours alone.
    ours, theirs = our_gradients(learner_of(base), rows), peft_gradients(peft_model.double(), rows)
    assert set(ours) == set(theirs)
    # 1 layer of 7 linear maps, A and B, two adapters.
    assert len(ours) == 7 * 2 * 2
    for key, gradient in ours.items():
        assert theirs[key].norm() > 0, key
        assert (gradient - theirs[key]).norm() <= 1e-5 * theirs[key].norm(), key
    both = torch.cat([gradient.flatten() for gradient in ours.values()])
    wanted = torch.cat([theirs[key].flatten() for key in ours])
    assert (both - wanted).norm() <= 1e-6 * wanted.norm()


def test_peft_reads_our_directories_and_gives_the_same_logits(base: BaseModel, peft_model: Any) -> None:
    prompt, completion = PROMPTS["executor"][0], (8, 9, 10)
    rows = [ScoredRow(prompt, completion, loud_adapter(base, seed)) for seed in range(2)]
    with torch.no_grad():
        ours = completion_logits(base.model, base.bank, rows)
        for index, name in enumerate(NAMES):
            peft_model.set_adapter(name)
            theirs = peft_model(input_ids=torch.tensor([[*prompt, *completion[:-1]]])).logits[0, -3:]
            assert (ours[index] - theirs).abs().max() < 1e-5


def test_we_read_directories_of_peft(base: BaseModel, tmp_path: Path) -> None:
    plain = AutoModelForCausalLM.from_pretrained(base.name, dtype=torch.float32)
    options = base.options.lora
    config = LoraConfig(
        r=6, lora_alpha=9, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = get_peft_model(plain, config)
    model.save_pretrained(tmp_path)
    loaded = from_directory(tmp_path, base.bank)
    assert (loaded.options.rank, loaded.scale) == (6, 1.5) != (options.rank, loaded.scale)
    with torch.no_grad():
        ours = completion_logits(base.model, base.bank, [ScoredRow((5, 6, 7), (8, 9), loaded)])[0]
        theirs = model(input_ids=torch.tensor([[5, 6, 7, 8]])).logits[0, -2:]
    assert (ours - theirs).abs().max() < 1e-5
    del model, plain
    gc.collect()


def test_our_files_are_read_back_bit_equal(base: BaseModel, tmp_path: Path) -> None:
    weights = loud_adapter(base, 4)
    write_directory_atomic(tmp_path / "a", to_files(weights, base.origin))
    loaded = from_directory(tmp_path / "a", base.bank)
    assert list(loaded.pairs) == list(weights.pairs)
    assert loaded.scale == weights.scale
    for mine, other in zip(weights.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(mine, other)


def test_peft_itself_takes_a_part_out_of_the_base_for_some_adapters(base: BaseModel, tmp_path: Path) -> None:
    """Why such adapters are refused: A and B alone are another function."""
    ids = torch.tensor([[5, 6, 7, 8]])
    write_directory_atomic(tmp_path / "a", to_files(loud_adapter(base, 1), base.origin))
    found = []
    for start in (True, "gaussian", "olora"):
        file = tmp_path / "a" / "adapter_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"init_lora_weights": start}))
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.name), tmp_path / "a")
        found.append(model(input_ids=ids).logits.detach())
        if start != "olora":
            from_directory(tmp_path / "a", base.bank)
    assert torch.equal(found[0], found[1])
    assert (found[0] - found[2]).abs().max() > 0.01
    del model
    gc.collect()


def test_a_configuration_that_is_too_deep_is_refused(base: BaseModel, tmp_path: Path) -> None:
    files = to_files(loud_adapter(base, 1), base.origin)
    write_directory_atomic(tmp_path / "a", files | {"adapter_config.json": b"[" * 100_000})
    with pytest.raises(CheckpointError, match="can be read"):
        from_directory(tmp_path / "a", base.bank)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_rslora": True}, "no plain LoRA"),
        ({"use_dora": True}, "no plain LoRA"),
        ({"alpha_pattern": {"q_proj": 3}}, "no plain LoRA"),
        ({"bias": "all"}, "no plain LoRA"),
        ({"peft_type": "IA3"}, "no plain LoRA"),
        ({"alora_invocation_tokens": [9, 10]}, "no plain LoRA"),
        ({"use_qalora": True}, "no plain LoRA"),
        ({"layer_replication": [[0, 1]]}, "no plain LoRA"),
        ({"init_lora_weights": "pissa"}, "no plain LoRA"),
        ({"init_lora_weights": "pissa_niter_4"}, "no plain LoRA"),
        ({"init_lora_weights": "olora"}, "no plain LoRA"),
        ({"init_lora_weights": "loftq"}, "no plain LoRA"),
        ({"r": 3}, "has shape"),
        ({"r": None}, "can be read"),
        ({"r": math.inf}, "can be read"),
        ({"r": 0}, "r is 0"),
        ({"lora_alpha": math.inf}, "lora_alpha inf"),
        ({"lora_alpha": math.nan}, "lora_alpha nan"),
        ({"lora_alpha": 0}, "lora_alpha 0"),
        ({"lora_alpha": 10**400}, "can be read"),
    ],
)
def test_an_adapter_that_we_cannot_serve_exactly_is_refused(
    base: BaseModel, tmp_path: Path, change: dict[str, Any], message: str
) -> None:

    files = to_files(loud_adapter(base, 1), base.origin)
    config = json.loads(files["adapter_config.json"]) | change
    write_directory_atomic(tmp_path / "a", files | {"adapter_config.json": json.dumps(config).encode()})
    with pytest.raises(CheckpointError, match=message):
        from_directory(tmp_path / "a", base.bank)


@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.complex64])
def test_weights_of_another_kind_of_number_are_refused(base: BaseModel, kind: torch.dtype) -> None:
    files = to_files(loud_adapter(base, 1), base.origin)
    tensors = safetensors.torch.load(files["adapter_model.safetensors"])
    cast = {name: torch.ones_like(tensor, dtype=kind) for name, tensor in tensors.items()}
    with pytest.raises(CheckpointError, match=f"holds {kind}, weights are floating-point"):
        from_files(files | {"adapter_model.safetensors": safetensors.torch.save(cast)}, base.bank, "stranger")


def test_an_adapter_of_another_base_is_refused(base: BaseModel, base_for: BaseFor, tmp_path: Path) -> None:
    deeper = SKILLED.model_copy(update={"tiny": SKILLED.tiny.model_copy(update={"layers": 2, "steps": 1})})
    write_directory_atomic(tmp_path / "a", to_files(loud_adapter(base_for("relay", deeper), 1), Origin("other")))
    with pytest.raises(CheckpointError, match="made for another base"):
        from_directory(tmp_path / "a", base.bank)
