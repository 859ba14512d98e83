"""Workers that are alike: a call is answered once whoever dies, and one that kills workers is named."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster_cases import FACTORY

from mas.cluster import ClusterOptions, open_cluster
from mas.cluster.handle import Handle
from mas.cluster.pool import WorkerPool
from mas.core.errors import CallFailed, ClusterError, TrainingError


@asynccontextmanager
async def pool(
    logs: Path, workers: int = 2, factory: str = FACTORY, arguments: bytes = b""
) -> AsyncIterator[WorkerPool]:
    async with open_cluster(ClusterOptions(cpus=16, start_s=300.0), logs) as cluster:
        yield WorkerPool(cluster, [await cluster.spawn("one", factory, arguments) for _ in range(workers)])


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_call_that_kills_its_workers_is_named_and_calls_beside_it_are_answered(
    tmp_path: Path, workers: int
) -> None:
    """All calls are in flight when the first worker dies, so all of that worker are lost with it, as often as twice."""
    payloads = [f"{number}".encode() for number in range(7)] + [b"poison"]
    async with pool(tmp_path, workers) as opened:
        calls = [opened.call("survive", payload, f"call {payload.decode()}") for payload in payloads]
        *answers, error = await asyncio.gather(*calls, return_exceptions=True)
        assert answers == payloads[:-1]
        assert isinstance(error, ClusterError)
        assert re.search(
            f"call poison: 3 workers were lost with it, .*nothing else; their output is in {tmp_path}", str(error)
        )
        assert await opened.call("echo", b"still", "a later call") == b"still"
        assert opened.restarts in (2, 3), "one for each of three deaths; a worker that nobody needs stays dead"


async def test_a_worker_that_died_between_calls_costs_them_nothing(tmp_path: Path) -> None:
    async with pool(tmp_path, 1) as opened:
        (handle,) = opened._handles
        for restarts in range(1, 5):
            await opened._handles[0].kill()
            assert await opened.call("echo", b"again", "a call") == b"again"
            assert opened.restarts == restarts
        assert opened._handles[0].name == handle.name


async def test_a_worker_whose_error_is_fatal_is_lost_with_it_and_others_errors_are_errors(tmp_path: Path) -> None:
    async with open_cluster(ClusterOptions(cpus=2, start_s=300.0), tmp_path) as cluster:
        handles = [await cluster.spawn("one", FACTORY)]
        with pytest.raises(CallFailed, match="a bad value"):
            await WorkerPool(cluster, handles).call("fail", b"", "a call")
        opened = WorkerPool(cluster, handles, fatal={"ValueError"})
        with pytest.raises(ClusterError, match=r"a call: 3 workers were lost with it") as failed:
            await opened.call("fail", b"", "a call")
        assert "a bad value" in str(failed.value.__cause__)
        assert await opened.call("echo", b"again", "a later call") == b"again"
        assert opened.restarts == 3
        await opened.call_all("fail", b"")  # a fresh worker stands for the call
        assert opened.restarts == 4


async def test_a_worker_that_cannot_be_started_again_is_one_error(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    starts.mkdir()
    (starts / "first").touch()
    async with pool(tmp_path / "logs", 1, "cluster_workers:make_once", str(starts).encode()) as opened:
        with pytest.raises(ClusterError, match=r"one-0 was lost 3 times while it was started again.*logs"):
            await opened.call("die", b"", "a call")


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("hanging", [1, 3])
async def test_a_start_that_expires_is_one_more_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hanging: int
) -> None:
    """Starts that hang have two seconds; the others have as long as a busy machine needs."""
    hangs = tmp_path / "hangs"
    async with pool(tmp_path / "logs", 1, "cluster_workers:make_hanging", str(hangs).encode()) as opened:
        cluster, started = opened._cluster, list[Handle]()
        usual, respawn = cluster.options, cluster.respawn

        async def watched(handle: Handle) -> Handle:
            started.append(handle)
            if len(started) <= hanging:
                hangs.touch()
                cluster.options = usual.model_copy(update={"start_s": 2.0})
            else:
                hangs.unlink()
                cluster.options = usual
            return await respawn(handle)

        monkeypatch.setattr(cluster, "respawn", watched)
        await opened._handles[0].kill()
        if hanging == 1:
            assert await opened.call("echo", b"again", "a call") == b"again"
            assert opened.restarts == 2
        else:
            with pytest.raises(ClusterError, match=r"lost 3 times .*no answer to the factory within 2 s.*logs"):
                await opened.call("echo", b"again", "a call")


async def test_an_error_of_the_method_is_no_loss(tmp_path: Path) -> None:
    async with pool(tmp_path, 1) as opened:
        with pytest.raises(CallFailed, match="a bad value: 7"):
            await opened.call("fail", b"7", "a call")
        assert opened.restarts == 0


async def test_a_call_goes_to_the_worker_with_the_fewest_calls(tmp_path: Path) -> None:
    async with pool(tmp_path, 2) as opened:
        calls = [opened.call("meet", b"4", "a call") for _ in range(8)]
        assert await asyncio.gather(*calls) == [b"4"] * 8, "four calls met in each worker"


async def test_a_worker_that_is_started_again_is_prepared_before_it_takes_calls(tmp_path: Path) -> None:
    prepared: list[tuple[str, int]] = []

    async def prepare(handle: Handle) -> None:
        prepared.append((handle.name, handle.restarts))
        assert await handle.call("echo", b"first", timeout_s=10) == b"first"

    async with open_cluster(ClusterOptions(cpus=16, start_s=300.0), tmp_path) as cluster:
        handles = [await cluster.spawn("one", FACTORY) for _ in range(2)]
        opened = WorkerPool(cluster, handles, prepare)
        await opened.call_all("echo", b"all")
        assert prepared == []
        await handles[1].kill()
        await opened.call_alive("echo", b"those that live")
        assert opened.restarts == 0
        await opened.call_all("echo", b"all")
        assert prepared == [("one-1", 1)]
        for call in (opened.call_all, opened.call_alive):
            with pytest.raises(CallFailed):
                await call("no_such_method", b"")


async def test_a_worker_that_cannot_be_prepared_is_not_called(tmp_path: Path) -> None:
    async def prepare(handle: Handle) -> None:
        raise TrainingError(f"{handle.name} cannot be prepared")

    async with open_cluster(ClusterOptions(cpus=16, start_s=300.0), tmp_path) as cluster:
        opened = WorkerPool(cluster, [await cluster.spawn("one", FACTORY)], prepare)
        await opened._handles[0].kill()
        for _ in range(2):
            with pytest.raises(TrainingError, match="one-0 cannot be prepared"):
                await opened.call("echo", b"", "a call")
