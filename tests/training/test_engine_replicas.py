"""Engine replicas: who draws a completion changes none, any of them may die, and nothing of them is left."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from run_processes import started
from test_in_flight import EXACT, Steps, config_of, parameters
from test_workers import is_alive

from mas.cluster.handle import Handle
from mas.config.options import Config
from mas.core.engine import AdapterRef, Generation, Request, Sampling
from mas.core.errors import (
    CallExpired,
    ClusterError,
    ConfigError,
    EngineError,
    EngineLost,
    RefusedRequest,
    TrainingError,
    WorkerLost,
)
from mas.runs import engine_worker
from mas.runs.resolve import resolve_training
from mas.runs.worker_setup import setup_of
from mas.serving.adapter_files import packed_files
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.training.check_setup import check_processes
from mas.training.engine_processes import EngineVersionOrder, GenerateOrder, ProcessReplica, ScoreOrder
from mas.training.processes import Processes
from mas.training.trainer import Trainer


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", EXACT)


def replicated(config: Config, engines: int = 2, **cluster: Any) -> Config:
    return config.model_copy(update={"cluster": config.cluster.model_copy(update={"engines": engines, **cluster})})


async def train(config: Config, base: BaseModel, logs: Path) -> tuple[Trainer, Steps, list[int]]:
    """The last: the processes that there were at the end."""
    steps, pids = Steps(), list[int]()

    @asynccontextmanager
    async def processes() -> AsyncIterator[Processes]:
        async with started(config, base, logs) as found:
            yield found
            assert found.engine is not None
            pids.extend(member.replica.handle.pid for member in found.engine._members)  # type: ignore[attr-defined]

    trainer = Trainer(resolve_training(config), base, processes=processes)
    await trainer.run(steps)
    return trainer, steps, pids


def killing(
    monkeypatch: pytest.MonkeyPatch, request: int, times: int = 1, number: signal.Signals = signal.SIGKILL
) -> list[int]:
    """Whoever gets this request (from 1) gets a signal while it answers, and as many as `times` from then on."""
    call, seen, killed = Handle.call, list[str](), list[int]()

    async def watched(handle: Handle, method: str, payload: bytes = b"", **options: Any) -> bytes:
        seen.extend([method] if method == "generate" else [])
        if method == "generate" and len(seen) >= request and len(killed) < times and handle.pid is not None:
            killed.append(handle.pid)
            os.kill(handle.pid, number)
        return await call(handle, method, payload, **options)

    monkeypatch.setattr(Handle, "call", watched)
    return killed


@pytest.mark.matrix("staleness", [0, 2], default=[0])
@pytest.mark.nightly
async def test_engine_replicas_draw_what_one_engine_draws_also_if_one_is_killed(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staleness: int
) -> None:
    config = config_of(staleness, steps=2)
    alone = Steps()
    first = Trainer(resolve_training(config), base)
    await first.run(alone)
    killed = killing(monkeypatch, request=14)
    second, steps, pids = await train(replicated(config), base, tmp_path)
    assert len(killed) == 1
    assert [one["engines"]["count"] for one in steps.metrics] == [2, 2]
    assert steps.metrics[-1]["engines"]["restarts"] == 1
    for one in steps.metrics:
        assert [*one["engines"]["requests"]] == ["engine-0", "engine-1"]
    assert all(sum(one["engines"]["requests"][name] for one in steps.metrics) for name in ("engine-0", "engine-1"))
    assert steps.episodes == alone.episodes  # with the log-probabilities of every token, to the last bit
    assert second.progress.cost == first.progress.cost
    assert torch.equal(parameters(first.trainable.adapters), parameters(second.trainable.adapters))
    assert len(pids) == 2
    assert not [pid for pid in (*killed, *pids) if is_alive(pid)]


@pytest.mark.nightly
async def test_a_replica_that_hangs_is_killed_and_started_again(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, alone = config_of(0, steps=1), Steps()
    await Trainer(resolve_training(config), base).run(alone)
    stopped = killing(monkeypatch, request=4, number=signal.SIGSTOP)
    _, steps, _ = await train(replicated(config, hung_s=10), base, tmp_path)
    assert steps.episodes == alone.episodes
    assert len(stopped) == 1
    assert not is_alive(stopped[0])


@pytest.mark.parametrize("error", [WorkerLost("gone"), CallExpired("no answer to the factory within 120 s")])
async def test_a_start_that_is_lost_or_expires_is_a_loss_of_the_replica(error: ClusterError) -> None:
    class Expiring:
        async def respawn(self, handle: object) -> Handle:
            raise error

    replica = ProcessReplica(Expiring(), None, None, "float32")  # type: ignore[arg-type]
    with pytest.raises(EngineLost, match=str(error)):
        await replica.restart()


@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_requests_name_their_episode_as_their_session(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    generate, sessions = TransformersEngine.generate, list[str | None]()

    async def watched(engine: TransformersEngine, request: Request) -> tuple[Generation, ...]:
        sessions.append(request.session)
        return await generate(engine, request)

    monkeypatch.setattr(TransformersEngine, "generate", watched)
    steps, trainer = Steps(), Trainer(resolve_training(config_of(0, {"sampler": {"mode": mode}}, steps=1)), base)
    await trainer.run(steps)
    played = {episode.id for episode in steps.episodes[0]}
    assert played <= {*sessions}
    assert None not in sessions


@pytest.mark.nightly
async def test_a_request_that_kills_every_replica_ends_training(
    base: BaseModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killing(monkeypatch, request=6, times=99)
    with pytest.raises(TrainingError, match=r"engine replicas were lost while|was lost 3 times in a row"):
        await train(replicated(config_of(0)), base, tmp_path)


@pytest.mark.nightly
async def test_a_replica_that_cannot_be_made_is_one_error(base: BaseModel, tmp_path: Path) -> None:
    config = replicated(config_of(0), engines=1)
    broken = config.model_copy(update={"model": config.model.model_copy(update={"path": str(tmp_path / "gone")})})
    with pytest.raises(Exception, match=r"engine-0.*gone"):
        async with started(broken, base, tmp_path):
            pytest.fail("it was made")


async def test_a_replica_computes_what_the_engine_here_does_and_refuses_a_damaged_version(base: BaseModel) -> None:
    worker = await engine_worker.make(setup_of(config_of(0)))
    here = TransformersEngine(base)
    try:
        weights = base.bank.create(base.options.lora, 3)
        for tensor in weights.parameters():
            tensor.add_(0.05)
        await here.store.publish("planner", weights, version=4)
        digest, content = packed_files(weights, base.origin)
        order = EngineVersionOrder(ref=AdapterRef("planner", 4), digest=digest, number=7)
        with pytest.raises(EngineError, match="planner@4 came damaged"):
            await worker.load(msgspec.json.encode(order), msgspec.msgpack.encode({"adapter_config.json": b"{}"}))
        for _ in range(2):  # twice is as once: it may come again after a loss
            await worker.load(msgspec.json.encode(order), content)
        request = Request(prompt_ids=(5, 6), sampling=Sampling(max_tokens=5), seeds=(1, 2), adapter="planner")
        asked = msgspec.msgpack.encode(GenerateOrder(number=7, request=request))
        made = msgspec.msgpack.decode(await worker.generate(asked), type=tuple[Generation, ...])
        assert made == await here.generate(request)
        for number, adapter in ((7, "planner"), (None, None)):
            scoring = ScoreOrder(number=number, prompt_ids=(5, 6), completion_ids=(7, 8))
            scores = msgspec.msgpack.decode(await worker.score(msgspec.msgpack.encode(scoring)))
            assert scores == list(await here.score((5, 6), (7, 8), adapter))
        for _ in range(2):
            await worker.unload(b"7")
        with pytest.raises(KeyError):
            await worker.generate(asked)
    finally:
        await worker.close()
        await here.close()


@pytest.mark.nightly
async def test_an_error_of_a_replica_keeps_its_class(base: BaseModel, tmp_path: Path) -> None:
    async with started(replicated(config_of(0), engines=1), base, tmp_path) as processes:
        engine = processes.engine
        assert engine is not None
        replica = engine._members[0].replica
        cold = Request(prompt_ids=(5,), sampling=Sampling(max_tokens=10**6), seeds=(1,))
        with pytest.raises(RefusedRequest, match="max_tokens"):
            await engine.generate(cold)
        with pytest.raises(RefusedRequest, match=r"^engine-0: "):
            await replica.score_version(None, (), (10**9,))


def test_where_engine_replicas_cannot_be_used_is_said(base: BaseModel) -> None:
    def check(config: Config, *, is_distributed: bool = False) -> None:
        check_processes(resolve_training(config), is_distributed=is_distributed, is_started=True)

    check(replicated(config_of(0)))
    with pytest.raises(ConfigError, match="nobody starts processes here"):
        Trainer(resolve_training(replicated(config_of(0))), base)
    with pytest.raises(ConfigError, match="train without --bus"):
        check(replicated(config_of(0)), is_distributed=True)
    server = config_of(0).model_dump() | {"engine": {"name": "vllm_server"}, "cluster": {"engines": 2}}
    with pytest.raises(ConfigError, match=r"cluster\.engines=2 cannot be used here.*engine\.remote\.replicas"):
        check(Config.model_validate(server))
    with pytest.raises(ValueError, match=r"set one of cluster\.workers and cluster\.engines"):
        Config.model_validate({"cluster": {"workers": 1, "engines": 2}})
