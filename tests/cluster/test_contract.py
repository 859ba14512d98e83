"""The contract of `Cluster`, kept by every implementation."""

import asyncio
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import pytest_asyncio
from cluster_cases import FACTORY, KINDS, is_running, running, until

from mas import __version__
from mas.cluster import Cluster, ClusterOptions, Handle, Ref, open_cluster
from mas.cluster.records import WorkerSpec
from mas.core.errors import CallExpired, CallFailed, ClusterError, ConfigError, NoResources, WorkerLost

LIMIT_S = 60.0
NOTICED_S = {"local": 5.0, "ray": 30.0}
"""Ray takes a second on a machine that is not busy."""
CPUS = 16
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(1200)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=KINDS)
async def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """One for all tests: Ray takes seconds to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "a secret")
        patch.setenv("HF_TOKEN", "passed on")
        patch.setenv("JUDGE_KEY", "of some workers")
        options = ClusterOptions(
            kind=request.param,
            cpus=CPUS,
            payload_mib=16,
            heartbeat_s=0.2,
            hung_s=5.0,
            stop_s=2.0,
            start_s=600.0,
            environment=("HF_TOKEN",),
        )
        async with open_cluster(options, tmp_path_factory.mktemp(request.param)) as opened:
            yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(cluster: Cluster) -> Handle:
    """One that no test hurts."""
    return await cluster.spawn("shared", FACTORY, b"arguments", cpus=2, threads=3)


def digest(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


async def test_a_worker_is_made_of_its_arguments_in_a_process_of_its_own(worker: Handle) -> None:
    assert await worker.call("made_of", timeout_s=LIMIT_S) == b"arguments"
    assert worker.alive
    assert worker.pid not in (None, os.getpid())
    assert is_running(worker.pid or 0)


async def test_calls_of_synchronous_methods_run_in_the_order_in_which_they_were_made(worker: Handle) -> None:
    numbers = [str(number).encode() for number in range(50)]
    calls = [worker.call("append", number, timeout_s=LIMIT_S) for number in numbers]
    assert (await asyncio.gather(*calls))[-1] == b",".join(numbers)


async def test_calls_with_objects_have_their_turn(cluster: Cluster, worker: Handle) -> None:
    ref = await cluster.put(os.urandom(1 << 20))
    before = await worker.call("append", b"begin", timeout_s=LIMIT_S)
    numbers = [str(number).encode() for number in range(30)]
    calls = [
        worker.call("append", number, refs=[ref] * (int(number) % 3 == 0), timeout_s=LIMIT_S) for number in numbers
    ]
    assert (await asyncio.gather(*calls))[-1] == b",".join([before, *numbers])
    await cluster.free(ref)


async def test_calls_of_asynchronous_methods_run_side_by_side(worker: Handle) -> None:
    calls = [worker.call("meet", b"20", timeout_s=LIMIT_S) for _ in range(20)]
    assert await asyncio.gather(*calls) == [b"20"] * 20


async def test_any_bytes_come_back_as_they_were(worker: Handle) -> None:
    payloads = [b"", bytes(range(256)), os.urandom(1 << 20)]
    assert [await worker.call("echo", payload, timeout_s=LIMIT_S) for payload in payloads] == payloads


@pytest.mark.parametrize("method", ["digest", "digest_async"])
async def test_objects_reach_several_workers_by_reference(cluster: Cluster, worker: Handle, method: str) -> None:
    content, small = os.urandom(8 << 20), b"small"
    refs = [await cluster.put(content), await cluster.put(small)]
    assert [ref.size for ref in refs] == [8 << 20, 5]
    other = await cluster.spawn("reader", FACTORY)
    calls = [handle.call(method, b"payload", refs=refs, timeout_s=LIMIT_S) for handle in (worker, other)]
    assert await asyncio.gather(*calls) == [b" ".join(map(digest, (b"payload", content, small)))] * 2
    await other.stop()
    for ref in refs:
        await cluster.free(ref)


async def test_an_object_that_was_freed_or_never_stored_is_refused_before_the_call(
    cluster: Cluster, worker: Handle
) -> None:
    ref = await cluster.put(b"content")
    call = asyncio.create_task(worker.call("digest", refs=[ref], timeout_s=LIMIT_S))
    await asyncio.sleep(0)  # the call begins
    await asyncio.sleep(0)
    await cluster.free(ref)
    await cluster.free(ref)
    assert await call == b" ".join(map(digest, (b"", b"content"))), "calls that were made with it still get it"
    for strange in (ref, Ref(key="../../etc/passwd", size=1)):
        with pytest.raises(ClusterError, match=r"has been freed, or is of another cluster"):
            await worker.call("digest", refs=[strange], timeout_s=LIMIT_S)


async def test_an_error_in_a_method_comes_back_with_the_text_of_its_traceback(worker: Handle) -> None:
    with pytest.raises(CallFailed) as raised:
        await worker.call("fail", b"seven", timeout_s=LIMIT_S)
    text = str(raised.value)
    assert text.startswith(f"{worker.name}: fail raised ValueError: a bad value: seven \\ud800")
    assert 'cluster_workers.py", line' in text
    assert 'raise ValueError(f"a bad value: {payload.decode()}' in text
    assert raised.value.error_type == "ValueError"
    assert raised.value.__cause__ is None
    assert await worker.call("echo", b"goes on", timeout_s=LIMIT_S) == b"goes on"


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("nothing", r"no method 'nothing'; a Worker has append, "),
        ("_hidden", r"no method '_hidden'"),
        ("__class__", r"no method '__class__'"),
        ("text", r"text returned str; a worker's methods return bytes"),
    ],
)
async def test_what_is_no_method_is_refused_with_those_that_are(worker: Handle, method: str, message: str) -> None:
    with pytest.raises(CallFailed, match=message):
        await worker.call(method, timeout_s=LIMIT_S)


async def test_payloads_and_answers_over_the_limit_are_refused(worker: Handle) -> None:
    with pytest.raises(ClusterError, match=r"a payload of 17 MiB is over payload_mib=16: pass it by reference"):
        await worker.call("echo", bytes(17 << 20), timeout_s=LIMIT_S)
    with pytest.raises(CallFailed, match=r"large returned 17 MiB, over payload_mib=16"):
        await worker.call("large", str(17 << 20).encode(), timeout_s=LIMIT_S)
    assert len(await worker.call("large", str(16 << 20).encode(), timeout_s=LIMIT_S)) == 16 << 20


async def test_a_call_that_takes_too_long_is_given_up_and_cancelled(worker: Handle, tmp_path: Path) -> None:
    begun = tmp_path / "expired"
    with pytest.raises(CallExpired, match=r"no answer to wait within 1 s"):
        await worker.call("wait", str(begun).encode(), timeout_s=1.0)
    assert await until(begun.with_suffix(".cancelled").exists, 10)
    assert worker.alive


async def test_a_caller_that_is_cancelled_cancels_the_method(worker: Handle, tmp_path: Path) -> None:
    begun = tmp_path / "cancelled"
    call = asyncio.create_task(worker.call("wait", str(begun).encode(), timeout_s=None))
    assert await until(begun.exists, LIMIT_S)
    assert worker.member().calls == 1
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await until(begun.with_suffix(".cancelled").exists, 10)
    assert worker.member().calls == 0


async def test_a_worker_sees_few_variables_and_no_secrets(worker: Handle) -> None:
    seen = json.loads(await worker.call("environment", timeout_s=LIMIT_S))
    assert "OPENAI_API_KEY" not in seen
    assert seen["HF_TOKEN"] == "passed on"
    assert seen["OMP_NUM_THREADS"] == "3"
    assert seen["CUDA_VISIBLE_DEVICES"] == ""
    assert {"PATH", "HOME"} <= set(seen)


async def test_variables_that_are_named_for_one_worker_reach_no_other(cluster: Cluster, worker: Handle) -> None:
    handle = await cluster.spawn("named", FACTORY, environment=("JUDGE_KEY", "NOT_SET"))
    seen = json.loads(await handle.call("environment", timeout_s=LIMIT_S))
    assert (seen["JUDGE_KEY"], seen["HF_TOKEN"], "NOT_SET" in seen) == ("of some workers", "passed on", False)
    assert "JUDGE_KEY" not in json.loads(await worker.call("environment", timeout_s=LIMIT_S))
    await handle.stop()


async def test_a_worker_with_another_version_of_mas_is_one_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver takes itself for another version than the one that its workers are started with."""
    monkeypatch.setattr("mas.cluster.contract.WorkerSpec", partial(WorkerSpec, version="0.0.9"))
    message = rf"ClusterError: the driver has mas 0\.0\.9, and node .+ has mas {re.escape(__version__)} in .+: install"
    with pytest.raises(CallFailed, match=message):
        await cluster.spawn("newer", FACTORY)


async def test_a_worker_has_the_drivers_share_of_a_busy_cpu(worker: Handle) -> None:
    assert worker.pid is not None
    assert os.getpriority(os.PRIO_PROCESS, worker.pid) == os.getpriority(os.PRIO_PROCESS, 0)


async def test_what_a_worker_prints_is_in_its_files(cluster: Cluster, worker: Handle) -> None:
    await worker.call("say", b"a line", timeout_s=LIMIT_S)
    assert "a line\n" in (cluster.logs / f"{worker.name}.out").read_text()
    assert "A LINE\n" in (cluster.logs / f"{worker.name}.err").read_text()


async def test_members_are_what_the_driver_knows_of_each_worker(cluster: Cluster, worker: Handle) -> None:
    assert await until(lambda: worker.member().rss_bytes is not None, LIMIT_S)
    (member,) = [member for member in cluster.members() if member.name == worker.name]
    assert (member.kind, member.pid, member.state, member.restarts, member.calls) == (
        "shared",
        worker.pid,
        "alive",
        0,
        0,
    )
    assert member.name == "shared-0"
    assert member.node
    assert 5 << 20 < (member.rss_bytes or 0) < 2 << 30


async def test_a_factory_may_be_asynchronous(cluster: Cluster) -> None:
    handle = await cluster.spawn("async", "cluster_workers:make_async", b"made")
    assert await handle.call("made_of", timeout_s=LIMIT_S) == b"made async"
    await handle.stop()


@pytest.mark.parametrize(
    ("factory", "error", "message"),
    [
        (
            "cluster_workers:make_none",
            CallFailed,
            r"raised LookupError: nothing to make of x\n(?s:.*)cluster_workers.py",
        ),
        ("cluster_workers:missing", CallFailed, r"raised AttributeError"),
        ("no_such_module:make", CallFailed, r"raised ModuleNotFoundError: No module named 'no_such_module'"),
        ("cluster_workers:make_exit", WorkerLost, r"process"),
    ],
)
async def test_a_factory_that_fails_is_one_error_and_leaves_no_process(
    cluster: Cluster, factory: str, error: type[ClusterError], message: str
) -> None:
    with pytest.raises(error, match=message):
        await cluster.spawn("unmade", factory, b"x", cpus=CPUS - 4)
    *_, member = [member for member in cluster.members() if member.kind == "unmade"]
    assert member.state == "lost"
    assert await until(lambda: member.pid is None or not is_running(member.pid), 10)


@pytest.mark.parametrize(
    ("kind", "factory", "cpus", "gpus"),
    [
        ("Has Spaces", FACTORY, 1.0, 0.0),
        ("../up", FACTORY, 1.0, 0.0),
        ("worker", "os.system", 1.0, 0.0),
        ("worker", "a/b.py:make", 1.0, 0.0),
        ("worker", FACTORY, -1.0, 0.0),
        ("worker", FACTORY, float("nan"), 0.0),
        ("worker", FACTORY, 1.0, 1.5),
    ],
)
async def test_arguments_that_no_worker_can_be_made_of_are_refused(
    cluster: Cluster, kind: str, factory: str, cpus: float, gpus: float
) -> None:
    before = cluster.members()
    with pytest.raises(ConfigError, match=r"use "):
        await cluster.spawn(kind, factory, cpus=cpus, gpus=gpus)
    assert cluster.members() == before


async def test_more_cpus_or_gpus_than_there_are_is_one_error_that_says_both_numbers(cluster: Cluster) -> None:
    with pytest.raises(NoResources, match=rf"greedy-0 asks for 100 CPUs and 0 GPUs.* {CPUS} CPUs"):
        await cluster.spawn("greedy", FACTORY, cpus=100)
    with pytest.raises(NoResources, match=r"greedy-1 asks for 1 CPUs and 1 GPUs.* 0 GPUs"):
        await cluster.spawn("greedy", FACTORY, gpus=1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
async def test_a_worker_killed_during_calls_is_lost_and_can_be_started_again(
    cluster: Cluster, number: signal.Signals, tmp_path: Path
) -> None:
    handle = await cluster.spawn("killed", FACTORY, b"same", cpus=CPUS - 4)
    begun = tmp_path / "begun"
    waiting = [asyncio.create_task(handle.call("wait", str(begun).encode(), timeout_s=None)) for _ in range(3)]
    assert await until(begun.exists, LIMIT_S)
    start = time.monotonic()
    os.kill(handle.pid or 0, number)
    ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LIMIT_S)
    assert time.monotonic() - start < NOTICED_S[cluster.options.kind]
    assert all(isinstance(end, WorkerLost) for end in ends)
    assert re.match(rf"{handle.name} \(pid {handle.pid}, node .+\): wait: .*process", str(ends[0]))
    assert not handle.alive
    assert "process" in await asyncio.wait_for(handle.wait_ended(), 1)
    assert handle.member().state == "lost"
    with pytest.raises(WorkerLost):
        await handle.call("echo", timeout_s=LIMIT_S)
    again = await cluster.respawn(handle)
    assert (again.name, again.member().restarts, again.alive) == (handle.name, 1, True)
    assert again.pid != handle.pid
    assert await again.call("made_of", timeout_s=LIMIT_S) == b"same"
    with pytest.raises(ClusterError, match=r"is not this cluster's newest"):
        await cluster.respawn(handle)
    await again.stop()


async def test_the_end_of_an_idle_worker_is_noticed(cluster: Cluster) -> None:
    handle = await cluster.spawn("idle", FACTORY)
    os.kill(handle.pid or 0, signal.SIGKILL)
    await asyncio.wait_for(handle.wait_ended(), 10)
    assert not handle.alive
    await handle.stop()


async def test_a_worker_that_hangs_is_noticed_and_killed(cluster: Cluster, tmp_path: Path) -> None:
    handle = await cluster.spawn("stopped", FACTORY)
    begun = tmp_path / "begun"
    call = asyncio.create_task(handle.call("wait", str(begun).encode(), timeout_s=None))
    assert await until(begun.exists, LIMIT_S)
    os.kill(handle.pid or 0, signal.SIGSTOP)
    with pytest.raises(WorkerLost, match=r"no answer to a heartbeat for 5 s: it hangs, and is killed"):
        await asyncio.wait_for(call, 20)
    assert await until(lambda: not is_running(handle.pid or 0), 10)


async def test_a_worker_that_is_stopped_is_closed_and_ends_with_its_children(cluster: Cluster, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    handle = await cluster.spawn("closing", "cluster_workers:make_closing", str(closed).encode())
    child = int(await handle.call("start_child", timeout_s=LIMIT_S))
    waiting = asyncio.create_task(handle.call("wait", str(tmp_path / "wait").encode(), timeout_s=None))
    assert await until((tmp_path / "wait").exists, LIMIT_S)
    await handle.stop()
    with pytest.raises(WorkerLost, match=r"wait: it was stopped"):
        await waiting
    assert closed.exists()
    assert (handle.alive, handle.member().state) == (False, "stopped")
    assert await until(lambda: not running([handle.pid or 0, child]), 10)
    await handle.stop()


async def test_a_worker_that_does_not_close_in_time_is_killed(cluster: Cluster) -> None:
    handle = await cluster.spawn("lingering", "cluster_workers:make_lingering")
    async with asyncio.timeout(20):
        await handle.stop(0.5)
    assert await until(lambda: not is_running(handle.pid or 0), 10)


async def test_a_worker_that_lives_can_be_started_afresh(cluster: Cluster) -> None:
    handle = await cluster.spawn("fresh", FACTORY)
    await handle.call("append", b"state", timeout_s=LIMIT_S)
    again = await cluster.respawn(handle)
    assert await again.call("append", b"new", timeout_s=LIMIT_S) == b"new"
    assert await until(lambda: not is_running(handle.pid or 0), 10)
    await again.stop()
