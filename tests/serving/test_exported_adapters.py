"""Exported adapters name their base as others find it, and the peft and vLLM of others compute with them what we do."""

import gc
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from conftest import BaseFor, Ran
from loud import loud_adapter
from parts import make_turn
from peft import PeftConfig, PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM

from mas.config.options import LearnerOptions, ModelOptions
from mas.core.errors import ConfigError
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_files import exported_files
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import BaseModel, load_base
from mas.serving.model_sources import PUBLISHED, Origin
from mas.training.batch import train_rows
from mas.training.learner import Learner
from mas.training.saved import adapters_from_run
from mas.training.updates.preference import LIKELIHOOD

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SAID = ("The capital of France is Paris.", "It is Rome, of course!")


@pytest.fixture
def hub_id(base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A model of a hub, as the hub's own cache holds it."""
    cached = tmp_path / "hub" / "models--someone--small"
    shutil.copytree(base_for("relay").name, cached / "snapshots" / COMMIT)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return "someone/small"


def test_an_adapter_of_a_hub_model_names_its_id_and_commit(hub_id: str, tmp_path: Path) -> None:
    base = load_base(ModelOptions(path=hub_id))
    assert base.origin == Origin("someone/small", COMMIT)
    write_directory_atomic(tmp_path / "a", exported_files(loud_adapter(base, 1), base.origin))
    config = PeftConfig.from_pretrained(tmp_path / "a")
    assert (config.base_model_name_or_path, config.revision) == ("someone/small", COMMIT)
    card = (tmp_path / "a" / "README.md").read_text()
    assert f'from_pretrained("someone/small", revision="{COMMIT}")' in card


def test_a_run_exports_adapters_that_name_a_directory_as_it_is(
    base_for: BaseFor, tmp_path: Path, mas: Callable[..., Ran], small_overrides: tuple[str, ...]
) -> None:
    once = ["train.steps=1", "train.tasks_per_step=1", "train.eval_tasks=1", "train.checkpoint_every=0"]
    trained = mas("train", "scenario=relay", *small_overrides, *once, f"run_dir={tmp_path}/run")
    assert trained.code == 0, trained.err
    exported = tmp_path / "run" / "adapters" / "planner"
    config = json.loads((exported / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == (base_for("relay").name, None)
    assert "None" not in (exported / "README.md").read_text()


def test_training_starts_from_an_adapter_that_names_the_published_model_or_the_directory_of_it(
    base_for: BaseFor, tmp_path: Path
) -> None:
    base = base_for("relay")
    published = BaseModel(
        **{name: getattr(base, name) for name in ("name", "model", "bank", "text", "options", "attention")},
        origin=Origin("someone/small"),
    )
    (tmp_path / "adapters").mkdir()
    for name in ("someone/small", f"/elsewhere/{Path(base.name).name}"):
        weights = loud_adapter(base, 1)
        write_directory_atomic(tmp_path / "adapters" / "a", exported_files(weights, Origin(name)))
        begun = adapters_from_run({"a": loud_adapter(base, 2)}, str(tmp_path), published)["a"]
        assert all(map(torch.equal, begun.parameters(), weights.parameters()))
    write_directory_atomic(tmp_path / "adapters" / "a", exported_files(weights, Origin("someone/other")))
    with pytest.raises(ConfigError, match="was trained on someone/other, this base is someone/small"):
        adapters_from_run({"a": weights}, str(tmp_path), published)


class Exported(NamedTuple):
    """An adapter of the real model that has learned, its directory, and a prompt with two answers to compare."""

    base: BaseModel
    learner: Learner
    path: Path
    prompt: tuple[int, ...]
    said: tuple[tuple[int, ...], ...]

    def logits(self, said: tuple[int, ...], *, is_bare: bool = False) -> Tensor:
        """Ours, [L, V]."""
        row = ScoredRow(self.prompt, said, None if is_bare else self.learner.adapters["a"])
        with torch.no_grad():
            return completion_logits(self.base.model, self.base.bank, [row])[0]


def scored(logits_LV: Tensor, said: tuple[int, ...]) -> Tensor:
    """Log-probabilities of the tokens, [L]."""
    return torch.log_softmax(logits_LV.float(), -1)[range(len(said)), list(said)]


@pytest.fixture(params=["float32", pytest.param("bfloat16", marks=pytest.mark.nightly(shard=False))])
def exported(request: pytest.FixtureRequest, smollm: Path, tmp_path: Path) -> Exported:
    """The adapter has learned for five steps to give the second, wrong answer."""
    base = load_base(ModelOptions(path="smollm2", dtype=request.param))
    assert base.name == str(smollm)
    prompt = tuple(base.tokenizer.chat_messages([("user", "What is the capital of France?")]))
    said = tuple(tuple(base.tokenizer.encode(text)) for text in SAID)
    learner = Learner(base, {"a": base.bank.create(base.options.lora, 0)}, LearnerOptions(lr=1e-3), LIKELIHOOD)
    turn = make_turn(role="a", prompt_ids=prompt, completion_ids=said[1])
    rows = train_rows([turn], [1.0], {"a": "a"}, aggregation="seq_mean_token_mean", max_length=64)
    for _ in range(5):
        learner.step(rows)
    write_directory_atomic(tmp_path / "a", exported_files(learner.adapters["a"], base.origin))
    return Exported(base, learner, tmp_path / "a", prompt, said)


@pytest.mark.nightly(of=16)
def test_peft_computes_with_an_exported_adapter_of_the_real_model_what_we_do(exported: Exported, smollm: Path) -> None:
    assert json.loads((exported.path / "adapter_config.json").read_text())["base_model_name_or_path"] == PUBLISHED.name
    assert "Q4_1" in (exported.path / "README.md").read_text()
    plain = AutoModelForCausalLM.from_pretrained(smollm, dtype=exported.base.model.dtype)
    model = PeftModel.from_pretrained(plain, exported.path)
    for said in exported.said:
        ids = torch.tensor([[*exported.prompt, *said[:-1]]])
        with torch.no_grad():
            theirs = model(input_ids=ids).logits[0, -len(said) :].float()
        ours, bare = exported.logits(said), exported.logits(said, is_bare=True)
        gap = (scored(ours, said) - scored(theirs, said)).abs().mean()
        assert gap < exported.learner.tolerance
        assert (scored(ours, said) - scored(bare, said)).abs().mean() > 5 * exported.learner.tolerance
        if exported.base.options.dtype == "float32":
            # Rounding of 30 layers: logits are of the order of 10, of which 2^-23 is 1e-6.
            assert (ours - theirs).abs().max() < 1e-3
    del model, plain
    gc.collect()


_VLLM = """
import json, sys
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

directory, adapter, texts = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
llm = LLM(directory, dtype="float32", max_model_len=256, enforce_eager=True, enable_lora=True, max_loras=1,
          max_lora_rank=8, max_num_seqs=4)
asked = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
lora = LoRARequest("a", 1, adapter)
# One after the other: vLLM's CPU build ends where it scores several prompts under an adapter in one pass.
found = [llm.generate({"prompt_token_ids": ids}, asked, lora_request=lora)[0] for ids in texts]
rows = [[place[token].logprob for token, place in zip(ids[1:], one.prompt_logprobs[1:])]
        for ids, one in zip(texts, found)]
print("rows", json.dumps(rows))
"""


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.vllm
@pytest.mark.slow
@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("exported", ["float32"], indirect=True)
def test_vllm_by_itself_computes_with_an_exported_adapter_of_the_real_model_what_we_do(
    exported: Exported, smollm: Path
) -> None:
    texts = [[*exported.prompt, *said] for said in exported.said]
    words = [sys.executable, "-c", _VLLM, str(smollm), str(exported.path), json.dumps(texts)]
    environment = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    ran = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0, ran.stderr[-3000:]
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("rows ")]
    for said, row in zip(exported.said, json.loads(line.removeprefix("rows ")), strict=True):
        theirs = torch.tensor(row[-len(said) :])
        assert (scored(exported.logits(said), said) - theirs).abs().mean() < exported.learner.tolerance
        bare = scored(exported.logits(said, is_bare=True), said)
        assert (bare - theirs).abs().mean() > 5 * exported.learner.tolerance
