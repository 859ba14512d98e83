"""Estimates of memory hold what the model, its cache, its adapters and its backward pass take, without loading it."""

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from conftest import BaseFor
from parts import make_turn

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.config.options import LearnerOptions
from mas.core.engine import Request, Sampling
from mas.core.errors import ModelError
from mas.core.host import free_memory, gib
from mas.serving.base_measures import Footprint
from mas.serving.decode import Batch, DecodeJob
from mas.serving.grammar import Grammars
from mas.serving.model import BaseModel
from mas.serving.sharded_base import block_matrices
from mas.training.batch import TrainRow
from mas.training.learner import Learner
from mas.training.step_metrics import MetricAccumulator

_GIB = 2**30


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture(scope="module")
def footprint(base: BaseModel) -> Footprint:
    return Footprint.of(base.options, base.name)


def test_weights_and_adapters_are_counted_exactly(base: BaseModel, footprint: Footprint) -> None:
    parameters = list(base.model.parameters())
    assert footprint.parameters == sum(one.numel() for one in parameters)
    assert footprint.weights == sum(one.nbytes for one in parameters)
    matrices = [sum(one.nbytes for one in block) for block in block_matrices(base.model)]
    assert (footprint.blocks, footprint.widest_block) == (sum(matrices), max(matrices))
    assert footprint.blocks < footprint.weights
    adapter = base.bank.create(base.options.lora, 0)
    assert footprint.adapter == sum(one.nbytes for one in adapter.parameters())
    half = Footprint.of(base.options.model_copy(update={"dtype": "bfloat16"}), base.name)
    assert half.weights * 2 == footprint.weights
    assert half.adapter == footprint.adapter, "adapters are float32 whatever the base is"


def test_a_cached_token_is_what_the_running_batch_holds_of_one(base: BaseModel, footprint: Footprint) -> None:
    request = Request(prompt_ids=tuple(range(1, 11)), sampling=Sampling(temperature=1.0, max_tokens=5), seeds=(0,))
    batch = Batch(base, Grammars(base.text))
    batch.admit([DecodeJob(request, 0, None, None)])
    buffers = [buffer for layer in batch._cache.layers for buffer in layer.buffers]
    assert footprint.cached == sum(one[:, :, 0].nbytes for one in buffers)


def test_the_estimate_of_a_backward_pass_is_near_what_it_keeps(base: BaseModel, footprint: Footprint) -> None:
    learner = Learner(base, {"one": base.bank.create(base.options.lora, 0)}, LearnerOptions(), LossOptions())
    turn = make_turn(role="one", prompt_ids=tuple(1 + place % 20 for place in range(100)), completion_ids=(5, 6, 7))
    rows = [TrainRow(turn, "one", 1.0, 1.0)]
    weights = {one.untyped_storage().data_ptr() for one in base.model.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        learner.accumulate(rows, defaultdict(MetricAccumulator))
    tokens = 102
    assert 0.5 < tokens * footprint.activation / sum(kept.values()) < 2.0


def test_what_is_no_model_is_the_error_that_loading_it_is(base: BaseModel, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded as a causal language model"):
        Footprint.of(base.options, tmp_path)


def machine(folder: Path, available_kib: int, line: str, files: dict[str, str]) -> int | None:
    """What is free on a machine with such files."""
    proc, groups = folder / "proc", folder / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n")
    (proc / "self" / "cgroup").write_text(f"5:cpu:/elsewhere\n{line}\n")
    for name, content in files.items():
        path = groups / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return free_memory(proc, groups)


def test_free_memory_is_that_of_the_machine_where_no_group_sets_a_limit(tmp_path: Path) -> None:
    assert machine(tmp_path, 4 * 2**20, "0::/", {"memory.max": "max\n"}) == 4 * _GIB


@pytest.mark.parametrize("place", ["", "job/"], ids=["of its parent", "of its own"])
def test_the_tightest_group_counts_with_files_that_it_can_give_back(tmp_path: Path, place: str) -> None:
    files = {
        f"{place}memory.max": f"{2 * _GIB}\n",
        f"{place}memory.current": f"{_GIB}\n",
        f"{place}memory.stat": f"anon 7\ninactive_file {_GIB // 2}\n",
    }
    assert machine(tmp_path, 4 * 2**20, "0::/job", files) == _GIB + _GIB // 2


def test_groups_of_the_first_version_are_read_too(tmp_path: Path) -> None:
    files = {
        "memory/job/memory.limit_in_bytes": f"{_GIB}\n",
        "memory/job/memory.usage_in_bytes": f"{2 * _GIB}\n",
        "memory/job/memory.stat": "total_inactive_file 0\n",
    }
    assert machine(tmp_path, 4 * 2**20, "4:memory:/job", files) == 0, "more is used than allowed: nothing is free"


def test_free_memory_is_unknown_where_nothing_tells(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "proc", tmp_path / "cgroup") is None


def test_sizes_are_readable() -> None:
    assert [gib(size) for size in (3 * _GIB // 2, 50 * 2**20)] == ["1.5 GiB", "50 MiB"]
