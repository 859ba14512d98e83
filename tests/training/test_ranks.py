"""Learner ranks: what two processes learn is what one learns, any may die, and wrong ones are noticed."""

import asyncio
import os
import signal
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Timer
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import BaseFor
from hypothesis import given, settings
from hypothesis import strategies as st
from parts import make_turn
from rows import batch_of, learner_of, on_policy, rows_of
from run_processes import started
from test_in_flight import EXACT, Steps, config_of, parameters

from mas.cluster.handle import Handle
from mas.config.options import Config, LearnerOptions
from mas.core.concurrency import finished
from mas.core.errors import CallExpired, CallFailed, ClusterError, ConfigError, TrainingError, WorkerLost
from mas.runs.learner_rank import LearnerRank
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.check_setup import check_processes
from mas.training.learner import Learner
from mas.training.rank_group import deal
from mas.training.ranks import LearnerRanks
from mas.training.trainer import Trainer

TWO_UPDATES = {"minibatches": 2, "epochs": 2}


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", EXACT)


class ThreadHandle:
    """A rank in a thread of this process. `fails`: of its calls, from 1, those that end like this."""

    def __init__(self, rank: LearnerRank, fails: dict[int, Exception]) -> None:
        self.name, self.alive, self.rank = "learner-0", True, rank
        self.methods: list[str] = []
        self._fails = fails
        self._thread = ThreadPoolExecutor(1)

    async def call(self, method: str, payload: bytes = b"", *, refs: Sequence[bytes] = (), timeout_s: None) -> bytes:
        self.methods.append(method)
        if len(self.methods) in self._fails:
            self.rank._leave()
            raise self._fails[len(self.methods)]
        work = getattr(self.rank, method)
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, payload, *refs)

    async def kill(self) -> None:
        """Nothing: what fails here answers."""


class ThreadCluster:
    """What `LearnerRanks` asks of a cluster, in this process."""

    host, logs = "127.0.0.1", Path("logs")

    def __init__(self, payload_mib: float = 256) -> None:
        self.options = SimpleNamespace(payload_mib=payload_mib)

    async def put(self, content: bytes) -> bytes:
        return content

    async def free(self, ref: bytes) -> None:
        """Nothing."""


def rank_like(learner: Learner) -> LearnerRank:
    """One with adapters of the same shape and other weights, of the same base."""
    rank = object.__new__(LearnerRank)
    rank._surrogate, rank._group = None, None
    rank._learner = learner_of(learner.base, spread=0.9)
    return rank


class Sharing:
    """A learner that shares updates with ranks in threads."""

    def __init__(
        self, learner: Learner, ranks: int = 1, fails: dict[int, Exception] | None = None, payload_mib: float = 256
    ) -> None:
        self.handles = [ThreadHandle(rank_like(learner), fails or {}) for _ in range(ranks)]
        cluster: Any = ThreadCluster(payload_mib)
        handles: Any = self.handles
        learner.ranks = LearnerRanks(cluster, handles, asyncio.get_running_loop())
        self._thread = ThreadPoolExecutor(1)

    async def run(self, work: Any) -> Any:
        """What a function returns that works with the learner."""
        return await finished(self._thread, work)


def difference(one: Learner, other: Learner) -> float:
    pairs = [(one.adapters, other.adapters), (one.references, other.references)]
    return max(float((parameters(a) - parameters(b)).detach().abs().max()) for a, b in pairs if a)


@pytest.mark.matrix("ranks", [1, 2], default=[2])
@pytest.mark.parametrize(
    "loss",
    [
        {},
        {"kl": 0.1},
        {"kl": 0.1, "reference": {"ema": 0.5}},
        {"ratio": "sequence"},
        {"bias_correction": True, "clip_low": 0.001, "clip_high": 0.001},
        {"entropy": 0.05},
    ],
    ids=lambda loss: "-".join(loss) or "plain",
)
async def test_several_processes_learn_what_one_learns(base: BaseModel, loss: dict[str, Any], ranks: int) -> None:
    options = LearnerOptions.model_validate(TWO_UPDATES | {"lr": 1e-3})
    alone, together = learner_of(base, options, **loss), learner_of(base, options, **loss)
    rows, sharing = on_policy(alone, rows_of(*alone.adapters), shift=0.1), Sharing(together, ranks)
    for _ in range(3):
        wanted = alone.step(rows, lr_scale=0.5)
        found = await sharing.run(lambda: together.step(rows, lr_scale=0.5))
        assert {name: pytest.approx(one, rel=1e-4, abs=1e-6) for name, one in wanted.items()} == found
    assert difference(alone, together) < 1e-6
    assert together.updates == alone.updates > 3
    times = 3 if loss.get("reference") else 1  # its average moves with every step
    assert [handle.methods.count("hold") for handle in sharing.handles] == [times] * ranks


async def test_log_probabilities_and_entropies_are_those_of_one_process(base: BaseModel) -> None:
    learner = learner_of(base)
    rows = rows_of(count=7)
    for read in (lambda: learner.logprobs(rows), lambda: learner.entropies(rows)):
        wanted = read()
        found = await Sharing(learner).run(read)
        learner.ranks = None
        assert found.keys() == wanted.keys()
        for turn, values in wanted.items():
            assert found[turn] == pytest.approx(values, abs=1e-5)


async def test_shares_and_updates_without_rows_add_nothing(base: BaseModel) -> None:
    alone, together = learner_of(base), learner_of(base)
    rows = rows_of("planner", count=1)
    assert [len(share) for share in deal(rows, 2)] in ([1, 0], [0, 1])
    sharing = Sharing(together)
    for given_rows in (rows, [], rows):
        alone.step(given_rows)
        await sharing.run(lambda given_rows=given_rows: together.step(given_rows))
    assert difference(alone, together) < 1e-6


async def test_ranks_follow_what_changes_beside_updates(base: BaseModel) -> None:
    alone, together = learner_of(base), learner_of(base)
    rows = rows_of("planner", "executor")

    def work(learner: Learner) -> None:
        learner.step(rows)
        learner.copy("planner", ["executor"])
        learner.step(rows)
        learner.minimising(learner.loss, learner.options).step(rows)
        learner.step(rows)

    work(alone)
    await Sharing(together).run(lambda: work(together))
    assert difference(alone, together) < 1e-6


async def test_a_rank_whose_weights_are_others_gets_the_right_ones_and_the_update_is_made_again(
    base: BaseModel,
) -> None:
    alone, together = learner_of(base), learner_of(base)
    rows, sharing = rows_of(), Sharing(together)
    for step in range(3):
        alone.step(rows)
        await sharing.run(lambda: together.step(rows))
        if step == 1:
            with torch.no_grad():
                sharing.handles[0].rank._learner.adapters["planner"].parameters()[0].mul_(1.001)
    assert sharing.handles[0].methods.count("hold") == 2
    assert difference(alone, together) < 1e-6


async def test_what_is_too_long_for_a_call_travels_as_an_object(base: BaseModel) -> None:
    alone, together = learner_of(base), learner_of(base)
    rows, sharing = rows_of(), Sharing(together, payload_mib=0.004)
    alone.step(rows)
    await sharing.run(lambda: together.step(rows))
    assert difference(alone, together) < 1e-6


@pytest.mark.parametrize(("failure", "call"), [(CallFailed("no room"), 3), (ClusterError("no room"), 3)])
async def test_a_rank_that_fails_ends_training_with_its_words(base: BaseModel, failure: Exception, call: int) -> None:
    learner = learner_of(base)
    before = parameters(learner.adapters).clone()
    sharing = Sharing(learner, fails={call: failure})
    with pytest.raises(TrainingError, match="learner-0 failed: no room"):
        await sharing.run(lambda: learner.step(rows_of()))
    assert sharing.handles[0].methods == ["join", "hold", "accumulate"]
    assert torch.equal(before, parameters(learner.adapters))


@pytest.mark.parametrize("ranks", [1, 3])
async def test_ranks_that_do_not_come_together_meet_again(base: BaseModel, ranks: int) -> None:
    alone, together = learner_of(base), learner_of(base)
    rows, sharing = rows_of(), Sharing(together, ranks)
    sharing.handles[-1]._fails[1] = ClusterError("they did not come together")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mas.training.ranks._MEET_S", 2.0)
        alone.step(rows)
        await sharing.run(lambda: together.step(rows))
    assert [handle.methods.count("join") for handle in sharing.handles] == [2] * ranks
    assert difference(alone, together) < 1e-6


@pytest.mark.parametrize(("worked_s", "killed"), [(20.0, []), (0.0, [1])])
async def test_a_rank_that_is_still_at_its_share_is_not_killed_for_a_lost_one(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, worked_s: float, killed: list[int]
) -> None:
    """It notices the loss at the end of its share, which may take as long as that of the process that trains."""
    monkeypatch.setattr("mas.training.ranks._GRACE_S", 0.05)
    learner, ended = learner_of(base), []
    sharing = Sharing(learner, 2)
    for number, handle in enumerate(sharing.handles):
        monkeypatch.setattr(handle, "kill", partial(_note, ended, number))
    lost, late = Future[bytes](), Future[bytes]()
    lost.set_exception(WorkerLost("gone"))
    timer = Timer(0.5, late.set_result, [b""])
    timer.start()
    await sharing.run(lambda: learner.ranks._part([lost, late], worked_s))
    assert ended == killed
    timer.join()


async def _note(ended: list[int], number: int) -> None:
    ended.append(number)


async def test_a_rank_that_freezes_while_it_starts_is_started_once_more(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, together = learner_of(base), learner_of(base)
    sharing, starts = Sharing(together), []

    async def respawn(handle: Any) -> Any:
        starts.append(handle.name)
        if len(starts) == 1:
            raise CallExpired("no answer within 1 s")
        handle.alive = True
        return handle

    monkeypatch.setattr(ThreadCluster, "respawn", staticmethod(respawn), raising=False)
    sharing.handles[0].alive = False
    alone.step(rows_of())
    await sharing.run(lambda: together.step(rows_of()))
    assert starts == ["learner-0", "learner-0"]
    assert difference(alone, together) < 1e-6


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30)), min_size=1, max_size=12), count=st.integers(1, 5)
)
@settings(max_examples=60, deadline=None)
def test_shares_hold_all_rows_in_order_and_whole_groups_of_about_equal_size(
    sizes: list[tuple[int, int]], count: int
) -> None:
    turns = [
        make_turn(role="planner", group=f"g{group}", completion_ids=(8,) * length, prompt_ids=(4, 5))
        for group, (members, length) in enumerate(sizes)
        for _ in range(members)
    ]
    rows = batch_of(turns, [0.0] * len(turns))
    shares = deal(rows, count)
    assert len(shares) == count
    assert [id(row) for share in shares for row in share] == [id(row) for row in rows]
    owners: dict[Any, set[int]] = {}
    for number, share in enumerate(shares):
        for row in share:
            owners.setdefault(row.turn.group, set()).add(number)
    assert all(len(own) == 1 for own in owners.values())
    costs = [2 + members * length for members, length in sizes]
    largest = max(map(tokens_of, shares))
    assert largest <= sum(costs) / count + max(costs)


def tokens_of(share: list[TrainRow]) -> int:
    return sum(len(row.turn.completion_ids) for row in share) + 2 * len({row.turn.group for row in share})


def spread(config: Config, learners: int = 2, **cluster: Any) -> Config:
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"learners": learners, **cluster})})


async def train(config: Config, base: BaseModel, logs: Path, resumed: int | None = None) -> tuple[Trainer, Steps]:
    (logs / "kept").mkdir(parents=True, exist_ok=True)
    steps = Steps()
    trainer = Trainer(
        resolve_training(config), base, processes=lambda: started(config, base, logs), checkpoints=logs / "kept"
    )
    if resumed is not None:
        assert trainer.resume(resumed)
    await trainer.run(steps)
    return trainer, steps


def killing(monkeypatch: pytest.MonkeyPatch, method: str, number: int, sign: signal.Signals) -> list[int]:
    """The rank that gets this call (from 1) of a method is killed, or stopped, at once."""
    call, seen, killed = Handle.call, list[str](), list[int]()

    async def watched(handle: Handle, name: str, payload: bytes = b"", **options: Any) -> bytes:
        seen.extend([name] if name == method else [])
        if name == method and len(seen) == number and handle.pid is not None and not killed:
            killed.append(handle.pid)
            os.kill(handle.pid, sign)
        return await call(handle, name, payload, **options)

    monkeypatch.setattr(Handle, "call", watched)
    return killed


@pytest.mark.nightly(of=16)
async def test_a_run_with_ranks_is_that_of_one_process_also_if_one_is_killed(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(0, learner=TWO_UPDATES, steps=2)
    first, alone = await train(config, base, tmp_path / "alone")
    killed = killing(monkeypatch, "accumulate", 3, signal.SIGKILL)
    second, steps = await train(spread(config), base, tmp_path / "spread")
    assert len(killed) == 1
    assert steps.metrics[-1]["learners"] == {"count": 2, "restarts": 1}
    assert steps.texts == alone.texts
    assert difference(first.trainable.learner, second.trainable.learner) < 1e-6


@pytest.mark.nightly(shard=False)  # half a minute each
@pytest.mark.parametrize("method", ["accumulate", "apply", "read", "hold", "join"])
async def test_a_rank_may_be_killed_in_any_call(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    config = spread(config_of(0, learner=TWO_UPDATES, steps=2))
    first, _ = await train(config, base, tmp_path / "whole")
    killed = killing(monkeypatch, method, 1, signal.SIGKILL)
    second, steps = await train(config, base, tmp_path / "killed")
    assert len(killed) == 1
    assert steps.metrics[-1]["learners"]["restarts"] == 1
    assert torch.equal(parameters(first.trainable.adapters), parameters(second.trainable.adapters))


@pytest.mark.nightly
async def test_a_rank_that_hangs_is_started_again(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = spread(config_of(0, learner=TWO_UPDATES, steps=2), heartbeat_s=0.5, hung_s=5.0)
    first, _ = await train(config, base, tmp_path / "whole")
    stopped = killing(monkeypatch, "accumulate", 2, signal.SIGSTOP)
    second, steps = await train(config, base, tmp_path / "stopped")
    assert len(stopped) == 1
    assert steps.metrics[-1]["learners"]["restarts"] == 1
    assert torch.equal(parameters(first.trainable.adapters), parameters(second.trainable.adapters))


@pytest.mark.nightly
async def test_a_run_goes_on_with_another_number_of_ranks(base: BaseModel, tmp_path: Path) -> None:
    config = config_of(0, learner=TWO_UPDATES, steps=4, checkpoint_every=2, keep_checkpoints=9)
    first, alone = await train(config, base, tmp_path / "alone")
    await train(spread(config), base, tmp_path / "spread")
    for learners in (1, 3):
        second, steps = await train(spread(config, learners, cpus=8), base, tmp_path / "spread", resumed=2)
        assert steps.texts == alone.texts[2:]
        assert difference(first.trainable.learner, second.trainable.learner) < 1e-6


def test_where_learners_have_no_use_is_said(base: BaseModel) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.learners=2 cannot be used here: nobody starts processes here"):
        Trainer(resolve_training(spread(config_of(0))), base)
    check_processes(resolve_training(spread(config_of(0))), is_distributed=True, is_started=True)
    with pytest.raises(ValueError, match=r"learner_gpus=1\.0 has no effect without learners: set cluster\.learners=2"):
        Config.model_validate({"cluster": {"learner_gpus": 1, "workers": 2}})
    with pytest.raises(ValueError, match=r"worker_gpus=1\.0 has no effect without workers: set cluster\.workers=2"):
        Config.model_validate({"cluster": {"worker_gpus": 1, "learners": 2}})
