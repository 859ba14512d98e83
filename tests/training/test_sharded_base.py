"""A base that is sharded over learner ranks: they learn what one whole base learns, and any may die."""

import asyncio
import gc
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from rows import learner_of, on_policy, rows_of
from test_in_flight import EXACT, config_of
from test_ranks import TWO_UPDATES, Sharing, ThreadCluster, ThreadHandle, difference, killing, spread, train
from torch import distributed as dist
from torch.distributed.tensor import DTensor
from torch.multiprocessing.reductions import StorageWeakRef

from mas.config.options import Config, LearnerOptions, ModelOptions
from mas.core.concurrency import finished
from mas.core.errors import ConfigError, ModelError, TrainingError, WorkerLost
from mas.runs.learner_rank import LearnerRank
from mas.runs.resolve import resolve_training
from mas.serving.forward import ScoredRow, score_rows
from mas.serving.model import BaseModel, load_base
from mas.serving.sharded_base import Shard, ShardedBlocks, block_matrices
from mas.training.adapters import probes_of
from mas.training.check_setup import check_processes
from mas.training.learner import Learner
from mas.training.rank_group import BlockRounds, JoinOrder, RankGroup, listen, most_wanted
from mas.training.ranks import LearnerRanks

LAYERS = EXACT.model_copy(update={"tiny": EXACT.tiny.model_copy(update={"layers": 3})})
"""Blocks enough that passes of several ranks can be at different ones."""
Load = Callable[[int, int], BaseModel]


@pytest.fixture(scope="module")
def whole(base_for: BaseFor) -> BaseModel:
    return base_for("relay", LAYERS)


@pytest.fixture
def load(whole: BaseModel) -> Load:
    """`load(rank, world)`: the same base, sharded."""
    return sharded_loads(LAYERS, whole)


def sharded_loads(model: ModelOptions, whole: BaseModel) -> Load:
    return lambda rank, world: load_base(model, whole.name, shard=Shard(rank, world))


class ProcessEnded(Exception):
    """A rank's process is gone."""


class ShardHandle(ThreadHandle):
    """A rank in a thread that holds a part of the base. `ends`: a method, and in which of its gathers, from 1."""

    def __init__(self, base: BaseModel, ends: tuple[str, int] | None = None) -> None:
        rank = object.__new__(LearnerRank)
        rank._surrogate, rank._group = None, None
        rank._learner = learner_of(base, spread=0.9)
        super().__init__(rank, {})
        self._ends, self._gathers = ends, 0

    async def call(self, method: str, payload: bytes = b"", **options: Any) -> bytes:
        if self._ends is not None and self._ends[0] == method and self.rank._group is not None:
            self._ending(self.rank._group)
        try:
            return await super().call(method, payload, **options)
        except ProcessEnded as error:
            self.alive = False
            raise WorkerLost("it died") from error

    def _ending(self, group: RankGroup) -> None:
        gather: Any = RankGroup.gather

        def count(*arguments: Any) -> bool:
            self._gathers += 1
            if self._ends is not None and self._gathers == self._ends[1]:
                self._ends = None
                self.rank._leave()
                raise ProcessEnded
            return bool(gather(group, *arguments))

        group.gather = count  # type: ignore[method-assign]


class ShardCluster(ThreadCluster):
    """Starts a rank again, with the part that it had."""

    def __init__(self, load: Load, world: int) -> None:
        super().__init__()
        self._load, self._world = load, world

    async def respawn(self, handle: ShardHandle) -> ShardHandle:
        blocks = handle.rank._learner.base.blocks
        assert blocks is not None
        return ShardHandle(self._load(blocks.shard.rank, self._world))


class ShardedSharing:
    """A learner with a part of the base that shares updates with ranks in threads, each with another part."""

    def __init__(
        self,
        load: Load,
        world: int,
        options: LearnerOptions | None = None,
        ends: tuple[str, int] | None = None,
        **loss: Any,
    ) -> None:
        self.learner = learner_of(load(0, world), options, **loss)
        self.handles = [ShardHandle(load(rank, world), ends if rank == 1 else None) for rank in range(1, world)]
        cluster: Any = ShardCluster(load, world)
        handles: Any = self.handles
        blocks = self.learner.base.blocks
        assert blocks is not None
        self.ranks = LearnerRanks(cluster, handles, asyncio.get_running_loop(), blocks)
        self.learner.ranks = self.ranks
        blocks.connect(self.ranks)
        self._thread = ThreadPoolExecutor(1)

    async def run(self, work: Callable[[Learner], Any]) -> Any:
        """What a function of the learner returns, in its thread."""
        return await finished(self._thread, lambda: work(self.learner))


@pytest.mark.parametrize(
    ("layers", "world", "options", "loss"),
    [
        pytest.param(1, 2, {}, {"kl": 0.1}, marks=pytest.mark.nightly),
        (1, 2, {"recompute_layers": True}, {"kl": 0.1, "reference": {"ema": 0.5}}),
        pytest.param(3, 3, {}, {"kl": 0.1}, marks=pytest.mark.nightly),
        pytest.param(3, 2, {}, {"ratio": "sequence"}, marks=pytest.mark.nightly),
        pytest.param(
            *(3, 2, {}, {"bias_correction": True, "clip_low": 0.001, "clip_high": 0.001}), marks=pytest.mark.nightly
        ),
        (3, 2, {"recompute_layers": True, "micro_batch_tokens": 64}, {"bias_correction": True, "clip_high": 0.001}),
    ],
    ids=str,
)
async def test_ranks_with_parts_of_the_base_learn_what_one_whole_base_learns(
    base_for: BaseFor, layers: int, world: int, options: dict[str, Any], loss: dict[str, Any]
) -> None:
    model = EXACT if layers == 1 else LAYERS
    whole = base_for("relay", model)
    given = LearnerOptions.model_validate(TWO_UPDATES | {"lr": 1e-3} | options)
    alone, unsharded = learner_of(whole, given, **loss), learner_of(whole, given, **loss)
    sharing = ShardedSharing(sharded_loads(model, whole), world, given, **loss)
    others = Sharing(unsharded, world - 1)
    rows = on_policy(alone, rows_of(*alone.adapters), shift=0.1)
    for _ in range(2):
        wanted = alone.step(rows, lr_scale=0.5)
        found = await sharing.run(lambda learner: learner.step(rows, lr_scale=0.5))
        assert {name: pytest.approx(one, rel=1e-4, abs=1e-6) for name, one in wanted.items()} == found
        assert found == await others.run(lambda: unsharded.step(rows, lr_scale=0.5))
    assert difference(unsharded, sharing.learner) == 0  # ranks that hold the whole base each add up the same shares
    # With more layers AdamW enlarges what the order of sums changes in gradients near 0, sharded or not.
    assert difference(alone, sharing.learner) < (1e-6 if layers == 1 else 5e-6)
    assert sharing.learner.updates == alone.updates > 3
    assert not dist.is_initialized()


async def test_ranks_with_fewer_micro_batches_or_none_keep_up_with_the_others(whole: BaseModel, load: Load) -> None:
    options = LearnerOptions(micro_batch_tokens=8, minibatches=3)
    alone, sharing = learner_of(whole, options), ShardedSharing(load, 3, options)
    for rows in (rows_of("planner", count=1), [], rows_of("planner", count=5) + rows_of("executor", count=1)):
        alone.step(rows)
        await sharing.run(lambda learner, rows=rows: learner.step(rows))
    assert difference(alone, sharing.learner) < 1e-6


async def test_what_one_process_computes_alone_is_that_of_the_whole_base(whole: BaseModel, load: Load) -> None:
    """Reads of older adapters, the canary's probes and padded scores are no shared work: ranks serve their parts."""
    alone, sharing = learner_of(whole), ShardedSharing(load, 2)
    rows = rows_of()

    def work(learner: Learner) -> list[float]:
        older = learner.logprobs(rows, adapters=learner.adapters)
        learner.step(rows)
        probes = probes_of(learner.base, rows, learner.adapters)
        found = [value for some in probes.values() for one in some for value in one.logprobs]
        entropies = learner.entropies(rows)
        found += [value for read in (older, entropies) for row in rows for value in read[id(row.turn)]]
        texts = [ScoredRow((4, 5, 6), (7, 8), learner.adapters["planner"])]
        return found + [value for row in score_rows(learner.base, texts) for value in row]

    wanted, found = work(alone), await sharing.run(work)
    assert found == pytest.approx(wanted, abs=1e-5)
    assert len(found) > 50
    assert [handle.methods.count("serve") for handle in sharing.handles] == [3]  # twice until an order


@pytest.mark.matrix(
    "ends",
    [("accumulate", 1), ("accumulate", 8), ("accumulate", 13), ("read", 3), ("serve", 4), ("serve", 13)],
    default=[("accumulate", 8)],
)
async def test_a_rank_may_be_lost_in_any_gather_and_the_work_is_done_again(
    whole: BaseModel, load: Load, ends: tuple[str, int]
) -> None:
    options = LearnerOptions.model_validate(TWO_UPDATES)
    alone, sharing = learner_of(whole, options, kl=0.1), ShardedSharing(load, 2, options, ends, kl=0.1)
    rows = rows_of()

    def work(learner: Learner) -> list[float]:
        found = learner.logprobs(rows, adapters=learner.adapters)
        learner.step(rows)
        return [value for row in rows for value in found[id(row.turn)]]

    wanted, found = work(alone), await sharing.run(work)
    assert sharing.ranks.restarts == 1
    assert found == pytest.approx(wanted, abs=1e-5)
    assert difference(alone, sharing.learner) < 1e-6
    matrices = [one for block in block_matrices(sharing.learner.base.model) for one in block]
    assert all(isinstance(one, DTensor) for one in matrices)  # no block stayed gathered when its pass was broken off


async def test_ranks_that_are_lost_again_and_again_end_training(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    sharing = ShardedSharing(load, 2, None, ("serve", 1))

    async def respawn(cluster: ShardCluster, handle: ShardHandle) -> ShardHandle:
        blocks = handle.rank._learner.base.blocks
        assert blocks is not None
        return ShardHandle(load(1, 2), ("serve", 1))

    monkeypatch.setattr(ShardCluster, "respawn", respawn)
    with pytest.raises(TrainingError, match="learner ranks were lost 3 times over a block of the base"):
        await sharing.run(lambda learner: probes_of(learner.base, rows_of(), learner.adapters))
    assert sharing.ranks.restarts == 2


async def test_the_thread_of_the_event_loop_cannot_wait_for_blocks(load: Load) -> None:
    sharing = ShardedSharing(load, 2)
    with pytest.raises(TrainingError, match="a sharded base computes in the learner's thread alone"):
        probes_of(sharing.learner.base, rows_of(), sharing.learner.adapters)


@pytest.mark.parametrize("shard", [Shard(0, 2), Shard(1, 2), Shard(2, 4), Shard(1, 3)], ids=str)
def test_a_process_holds_its_part_of_the_blocks_and_no_more(whole: BaseModel, shard: Shard) -> None:
    known = [one for one in gc.get_objects() if type(one) is torch.nn.Parameter]  # held, so that no id is used again
    others = {id(one) for one in known}
    base = load_base(LAYERS, whole.name)
    matrices = [one for block in block_matrices(base.model) for one in block]
    shapes, total = {one.shape for one in matrices}, sum(one.untyped_storage().nbytes() for one in matrices)
    storages = [StorageWeakRef(one.untyped_storage()) for one in matrices]
    del matrices
    blocks = ShardedBlocks(base.model, shard, torch.device("cpu"))
    texts = [ScoredRow((4, 5, 6), (7, 8))]
    assert score_rows(base, texts)[0] == pytest.approx(score_rows(whole, texts)[0], abs=1e-6)
    assert not any(one.expired() for one in storages)  # the copy on the host, until there are ranks
    blocks.connect(None)
    gc.collect()
    assert all(one.expired() for one in storages)
    if shard.world != 3:  # the first dimensions, 16 to 64, are multiples of 4
        assert blocks.resident_bytes * shard.world == total
    assert total / shard.world <= blocks.resident_bytes < total / shard.world * 1.1
    gathered = [one for one in gc.get_objects() if type(one) is torch.nn.Parameter and one.shape in shapes]
    assert sum(one.untyped_storage().nbytes() for one in gathered if id(one) not in others) == 0


def test_a_base_without_ranks_cannot_compute_any_more_and_says_so(load: Load) -> None:
    base = load(0, 2)
    assert base.blocks is not None
    base.blocks.connect(None)
    with pytest.raises(ModelError, match="the ranks that hold its other parts do not work with this process now"):
        score_rows(base, [ScoredRow((4, 5, 6), (7, 8))])


def test_a_model_without_blocks_is_refused(whole: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.serving.sharded_base.GradientCheckpointingLayer", Shard)
    with pytest.raises(ModelError, match=r"Qwen3ForCausalLM has no blocks .*: leave out cluster\.shard_base"):
        load_base(LAYERS, whole.name, shard=Shard(0, 2))


def test_the_block_is_gathered_that_most_ranks_wait_for() -> None:
    assert most_wanted([2, 5, 5]) == 5
    assert most_wanted([-1, 3, 4]) == 3
    assert most_wanted([-1, -1]) == -1
    assert most_wanted([-1, -1, 0]) == 0


def test_ranks_that_wait_for_different_blocks_all_get_theirs() -> None:
    """Three ranks, of which one makes a longer pass in another order and one none."""
    passes = [[0, 1, 2, 2, 1, 0], [2, 0, 1], []]
    listening = listen("127.0.0.1")
    host, port = listening.getsockname()[:2]

    def work(rank: int) -> list[list[int]]:
        order = JoinOrder(host=host, port=port, rank=rank, world=3, limit_s=20)
        group, found = RankGroup(order, listening if rank == 0 else None), []
        blocks: Any = SimpleNamespace(
            shard=Shard(rank, 3), part=lambda block: torch.tensor([10 * block + rank], dtype=torch.uint8)
        )
        rounds = BlockRounds(group, blocks)
        for block in passes[rank]:
            whole = torch.zeros(3, dtype=torch.uint8)
            rounds.fetch(block, whole)
            found.append(whole.tolist())
        rounds.finish()
        group.close()
        return found

    with ThreadPoolExecutor(3) as threads:
        found = [*threads.map(work, range(3))]
    assert found == [[[10 * block, 10 * block + 1, 10 * block + 2] for block in own] for own in passes]


def sharded(config: Config, **cluster: Any) -> Config:
    return spread(config, engines=1, shard_base=True, **cluster)


def test_a_sharded_base_is_refused_where_the_driver_would_sample_with_it() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.shard_base=True cannot be used here: .* set cluster\.engines=2"):
        check_processes(resolve_training(spread(config_of(0), shard_base=True)), is_distributed=False, is_started=True)
    with pytest.raises(ConfigError, match=r"cluster\.shard_base=True cannot be used here"):
        check_processes(
            resolve_training(spread(config_of(0), shard_base=True, workers=1)), is_distributed=False, is_started=True
        )
    check_processes(resolve_training(sharded(config_of(0))), is_distributed=False, is_started=True)
    with pytest.raises(ValueError, match=r"shard_base=True has no effect without learners: set cluster\.learners=2"):
        Config.model_validate({"cluster": {"shard_base": True, "engines": 2}})


@pytest.mark.nightly(shard=False)  # three processes each, and a fourth that takes the place of one
@pytest.mark.parametrize("method", ["accumulate", "apply", "read", "hold", "join", "serve"])
async def test_a_run_whose_base_is_sharded_is_that_of_one_process_also_if_a_rank_is_killed(
    base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config = config_of(0, learner=TWO_UPDATES, steps=2)
    base = base_for("relay", EXACT)
    first, alone = await train(config, base, tmp_path / "alone")
    killed = killing(monkeypatch, method, 2 if method == "accumulate" else 1, signal.SIGKILL)
    part = load_base(EXACT, base.name, shard=Shard(0, 2))
    second, steps = await train(sharded(config), part, tmp_path / "sharded")
    assert len(killed) == 1
    assert steps.metrics[-1]["learners"] == {"count": 2, "restarts": 1}
    assert steps.texts == alone.texts
    assert difference(first.trainable.learner, second.trainable.learner) < 1e-6
    assert not dist.is_initialized()
