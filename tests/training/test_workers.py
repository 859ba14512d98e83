"""Rollout workers: what they play is what one process plays, any of them may die, and nothing of them is left."""

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from run_processes import started
from test_in_flight import EXACT, Steps, config_of, parameters

from mas.cluster.handle import Handle
from mas.config.options import Config
from mas.core.engine import AdapterRef
from mas.core.errors import ConfigError, EngineError, TrainingError
from mas.runs import rollout_worker
from mas.runs.resolve import resolve_training
from mas.runs.worker_setup import setup_of
from mas.serving.adapter_files import digest_of, to_files
from mas.serving.model import BaseModel
from mas.training.check_setup import check_processes
from mas.training.processes import Processes
from mas.training.trainer import Trainer
from mas.training.workers import HeldVersionOrder, RolloutWorkers


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", EXACT)


def spread(config: Config, workers: int = 2, **cluster: Any) -> Config:
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"workers": workers, **cluster})})


async def train(config: Config, base: BaseModel, logs: Path) -> tuple[Trainer, Steps, list[RolloutWorkers]]:
    steps, opened = Steps(), list[RolloutWorkers]()

    @asynccontextmanager
    async def processes() -> AsyncIterator[Processes]:
        async with started(config, base, logs) as found:
            assert found.workers is not None
            assert found.ranks is None
            opened.append(found.workers)
            yield found

    trainer = Trainer(resolve_training(config), base, processes=processes)
    await trainer.run(steps)
    return trainer, steps, opened


def killing(monkeypatch: pytest.MonkeyPatch, order: int, times: int = 1) -> list[int]:
    """Whoever gets this order (from 1) is killed while it plays, and as many as `times` from then on."""
    call, seen, killed = Handle.call, list[str](), list[int]()

    async def watched(handle: Handle, method: str, payload: bytes = b"", **options: Any) -> bytes:
        seen.extend([method] if method == "play" else [])
        if method == "play" and len(seen) >= order and len(killed) < times and handle.pid is not None:
            killed.append(handle.pid)
            os.kill(handle.pid, signal.SIGKILL)
        return await call(handle, method, payload, **options)

    monkeypatch.setattr(Handle, "call", watched)
    return killed


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("staleness", [0, 2])
async def test_workers_play_what_one_process_plays_also_if_one_is_killed(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    config = config_of(staleness, steps=3)
    alone = Steps()
    first = Trainer(resolve_training(config), base)
    await first.run(alone)
    killed = killing(monkeypatch, order=5)
    second, steps, (workers,) = await train(spread(config), base, tmp_path)
    assert len(killed) == 1
    assert steps.metrics[-1]["workers"] == {"count": 2, "restarts": 1}
    assert steps.texts == alone.texts
    assert steps.ages == alone.ages == [{min(step, staleness)} for step in range(3)]
    assert second.progress.cost == first.progress.cost
    assert torch.equal(parameters(first.trainable.adapters), parameters(second.trainable.adapters))
    assert not [pid for pid in (*killed, *(one.pid for one in workers._cluster.members())) if pid and is_alive(pid)]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.nightly
async def test_versions_that_a_step_did_not_change_are_held_again(base: BaseModel, tmp_path: Path) -> None:
    config = config_of(0, {"roles": ["planner"]}, steps=3)
    alone = Steps()
    await Trainer(resolve_training(config), base).run(alone)
    trainer, steps, _ = await train(spread(config, 1), base, tmp_path)
    assert trainer.progress.versions == {"planner": 3, "executor": 0}
    assert steps.texts == alone.texts


@pytest.mark.nightly
async def test_a_run_may_go_on_with_workers_and_a_smaller_staleness(base: BaseModel, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    first = Trainer(
        resolve_training(config_of(2, checkpoint_every=3, keep_checkpoints=9)), base, checkpoints=tmp_path / "kept"
    )
    await first.run(Steps())
    config, steps = spread(config_of(1), 1), Steps()
    again = Trainer(
        resolve_training(config), base, checkpoints=tmp_path / "kept", processes=lambda: started(config, base, tmp_path)
    )
    assert again.resume(3)
    await again.run(steps)
    assert [one["in_flight"]["groups_dropped"] for one in steps.metrics] == [6, 0]
    assert [max(own) + 3 for own in steps.ages] == [0, 1]


@pytest.mark.nightly
async def test_an_order_that_kills_every_worker_ends_training(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing(monkeypatch, order=4, times=99)
    with pytest.raises(TrainingError, match=r"task \d+ of step \d+: 3 workers were lost with it"):
        await train(spread(config_of(0)), base, tmp_path)


@pytest.mark.nightly
async def test_a_worker_that_cannot_be_made_is_one_error(base: BaseModel, tmp_path: Path) -> None:
    config = spread(config_of(0), workers=1)
    broken = config.model_copy(update={"model": config.model.model_copy(update={"path": str(tmp_path / "gone")})})
    with pytest.raises(Exception, match=r"rollout-0.*gone"):
        async with started(broken, base, tmp_path):
            pytest.fail("it was made")


async def test_a_worker_speaks_as_the_version_that_it_was_given_and_refuses_a_damaged_one(base: BaseModel) -> None:
    worker = await rollout_worker.make(setup_of(config_of(1)))
    try:
        weights = base.bank.create(base.options.lora, 3)
        files = to_files(weights, base.origin)
        order = HeldVersionOrder(ref=AdapterRef("planner", 4), digest=digest_of(files))
        with pytest.raises(EngineError, match="planner@4 came damaged"):
            await worker.hold(
                msgspec.json.encode(order), msgspec.msgpack.encode(files | {"adapter_config.json": b"{}"})
            )
        for _ in range(2):  # twice is as once: it may come again after a loss
            await worker.hold(msgspec.json.encode(order), msgspec.msgpack.encode(files))
        store = worker._session.publishing.store
        held = store.weights("planner@4").parameters()
        assert all(torch.equal(a, b) for a, b in zip(held, weights.parameters(), strict=True))
        await worker.drop(msgspec.json.encode(order))
        await worker.drop(msgspec.json.encode(order))
    finally:
        await worker.close()


def test_where_workers_cannot_play_is_said(base: BaseModel) -> None:
    def check(config: Config, *, is_distributed: bool = False, is_started: bool = True) -> None:
        check_processes(resolve_training(config), is_distributed=is_distributed, is_started=is_started)

    check(spread(config_of(0)))
    with pytest.raises(ConfigError, match="nobody starts processes here"):
        Trainer(resolve_training(spread(config_of(0))), base)
    with pytest.raises(ConfigError, match="train without --bus"):
        check(spread(config_of(0)), is_distributed=True)
    server = config_of(0).model_dump() | {"engine": {"name": "vllm_server"}, "cluster": {"workers": 1}}
    with pytest.raises(ConfigError, match=r"cluster\.workers=1 cannot be used here.*engine\.remote\.replicas itself"):
        check(Config.model_validate(server))
    check(Config.model_validate(server | {"engine": {"name": "vllm"}}))
    with pytest.raises(ValueError, match=r"kind=ray has no effect without workers: set cluster\.workers=2"):
        Config.model_validate({"cluster": {"kind": "ray"}})


def test_what_a_worker_is_made_of_is_the_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = config_of(2)
    setup: Mapping[str, Any] = msgspec.json.decode(setup_of(config.as_stored()))
    assert Config.model_validate_json(setup["config"]) == config
    assert (setup["is_stored"], setup["directory"]) == (True, str(tmp_path))
