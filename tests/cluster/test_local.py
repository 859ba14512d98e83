"""What only the local cluster has: frames, processes, counted resources, files of objects."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from cluster_cases import FACTORY, is_running, until

from mas.cluster import Cluster, ClusterOptions, ResourceRequest, open_cluster
from mas.cluster.connection import WorkerConnection
from mas.cluster.frames import (
    MARGIN,
    REPLIES,
    REQUESTS,
    CorruptFrame,
    PingRequest,
    Reply,
    StartRequest,
    StopRequest,
    read_frame,
    write_frame,
)
from mas.cluster.local import ObjectFiles
from mas.cluster.records import Done, FailedCall, Outcome, Ref
from mas.cluster.resources import Resources, Share, visible_devices
from mas.cluster.worker import failure
from mas.core.errors import ClusterError, NoResources, WorkerLost

LIMIT = 1000


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def packed(message: object) -> bytes:
    return framed(msgspec.msgpack.encode(message))


HOSTILE = {
    "a length over the limit": b"\xff\xff\xff\xff",
    "a length just over the limit": (LIMIT + MARGIN + 1).to_bytes(4),
    "nothing in a frame": framed(b""),
    "no MessagePack": framed(b"\xc1" * 20),
    "an object of pickle": framed(b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x94."),
    "a number": packed(7),
    "a mapping without a kind": packed({"id": 1}),
    "an unknown kind": packed({"type": "eval", "id": 1}),
    "a text for a number": packed({"type": "ping", "id": "one"}),
    "deeply nested": framed(b"\x91" * 5000),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_frame_is_one_error(name: str) -> None:
    for kind in (REQUESTS, REPLIES):
        reader = asyncio.StreamReader()
        reader.feed_data(HOSTILE[name])
        reader.feed_eof()
        with pytest.raises(CorruptFrame, match=r"^a frame "):
            await read_frame(reader, kind, LIMIT)


async def test_a_connection_that_ends_between_frames_is_no_corrupt_one() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(packed(PingRequest(id=3)))
    reader.feed_eof()
    assert await read_frame(reader, REQUESTS, LIMIT) == PingRequest(id=3)
    with pytest.raises(EOFError):
        await read_frame(reader, REQUESTS, LIMIT)


@pytest.mark.parametrize("half", [b"\x00\x00", (100).to_bytes(4) + b"short"])
async def test_a_frame_that_is_cut_off_is_the_end_of_the_connection(half: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(half)
    reader.feed_eof()
    with pytest.raises(EOFError):
        await read_frame(reader, REPLIES, LIMIT)


async def test_a_network_that_gave_up_is_the_end_of_the_connection() -> None:
    """As after ETIMEDOUT: a TimeoutError, and no ConnectionError."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    explained = list[str]()

    async def explain(fault: str) -> str:
        explained.append(fault)
        return "the network gave up"

    connection = WorkerConnection("worker", reader, writer, LIMIT, explain)
    call = asyncio.create_task(connection.call("echo", b"", ()))
    await asyncio.sleep(0)
    reader.set_exception(TimeoutError(110, "Connection timed out"))
    for asked in (call, connection.ping()):
        with pytest.raises(WorkerLost, match=r"the network gave up|its connection is closed"):
            await asyncio.wait_for(asked, 10)
    assert explained == [""]
    await connection.close()
    theirs.close()


async def test_closing_does_not_wait_for_a_worker_that_does_not_read() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)

    async def explain(fault: str) -> str:
        return fault

    connection = WorkerConnection("worker", reader, writer, LIMIT, explain)
    call = asyncio.create_task(connection.call("echo", bytes(16 << 20), ()))
    await asyncio.sleep(0.05)
    await asyncio.wait_for(connection.close(), 5)
    with pytest.raises(WorkerLost, match="its connection is closed"):
        await asyncio.wait_for(call, 5)
    assert ours.fileno() == -1
    theirs.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    options = ClusterOptions(cpus=4, payload_mib=1, heartbeat_s=0.2)
    async with open_cluster(options, tmp_path) as opened:
        yield opened


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (
            HOSTILE["a length over the limit"],
            r"it sent a frame of 4294967295 bytes, 2097152 are possible; it was killed",
        ),
        (HOSTILE["no MessagePack"], r"it sent a frame that is no message .*; it was killed"),
        (packed(Reply(id=10**6, outcome=Done(b""))), r"it sent a reply to request 1000000, which was never sent"),
        (packed(Reply(id=-1, outcome=Done(b""))), r"it sent a reply to request -1, which was never sent"),
    ],
)
async def test_a_worker_that_sends_garbage_is_killed_and_its_calls_end_with_one_error(
    cluster: Cluster, garbage: bytes, reason: str, tmp_path: Path
) -> None:
    handle = await cluster.spawn("hostile", FACTORY)
    other = asyncio.create_task(handle.call("wait", str(tmp_path / "begun").encode(), timeout_s=None))
    assert await until((tmp_path / "begun").exists, 30)
    ends = await asyncio.gather(handle.call("garble", garbage, timeout_s=30), other, return_exceptions=True)
    assert isinstance(ends[1], WorkerLost)
    with pytest.raises(WorkerLost, match=reason):
        await handle.call("echo", timeout_s=30)
    assert await until(lambda: not is_running(handle.pid or 0), 10)
    assert await (await cluster.respawn(handle)).call("echo", b"again", timeout_s=30) == b"again"


async def bare_worker() -> tuple[asyncio.subprocess.Process, asyncio.StreamReader, asyncio.StreamWriter]:
    """A worker's process whose socket the test holds."""
    ours, theirs = socket.socketpair()
    with theirs:
        words = ["-m", "mas.cluster.worker", str(theirs.fileno()), str(os.getpid())]
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *words,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": path},
        )
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    return process, reader, writer


async def test_a_worker_that_is_sent_garbage_ends_and_says_why() -> None:
    process, _, writer = await bare_worker()
    begin = StartRequest(id=0, factory=FACTORY, arguments=b"", objects="", limit=LIMIT)
    await write_frame(writer, begin)
    writer.write(HOSTILE["a length over the limit"])
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 70
    assert said == b"the driver sent a frame of 4294967295 bytes, 1049576 are possible: this worker ends\n"
    writer.close()


async def test_a_worker_whose_driver_hangs_up_ends_with_its_group() -> None:
    process, reader, writer = await bare_worker()
    await write_frame(writer, PingRequest(id=1))
    assert (await asyncio.wait_for(read_frame(reader, REPLIES, LIMIT), 60)).id == 1
    writer.close()
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == -signal.SIGKILL
    assert said == b"the driver is gone: this worker ends\n"


async def test_a_worker_that_is_told_to_stop_ends_with_code_0() -> None:
    process, reader, writer = await bare_worker()
    await write_frame(writer, StartRequest(id=0, factory=FACTORY, arguments=b"", objects="", limit=LIMIT))
    assert await asyncio.wait_for(read_frame(reader, REPLIES, LIMIT), 60) == Reply(id=0, outcome=Done(b""))
    await write_frame(writer, StopRequest(id=1))
    assert await asyncio.wait_for(read_frame(reader, REPLIES, LIMIT), 60) == Reply(id=1, outcome=Done(b""))
    await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0
    writer.close()


async def test_how_a_process_ended_is_in_the_error(cluster: Cluster) -> None:
    for method, payload, how in (("exit", b"9", "ended with code 9"), ("die", b"", "was ended by SIGKILL")):
        handle = await cluster.spawn("dying", FACTORY)
        message = rf"{handle.name} \(pid {handle.pid}, node .+\): {method}: its process {how}; its output is in .*\.err"
        with pytest.raises(WorkerLost, match=message):
            await handle.call(method, payload, timeout_s=30)


async def test_what_workers_hold_is_counted_until_they_end(cluster: Cluster) -> None:
    first = await cluster.spawn("first", FACTORY, cpus=3)
    message = r"second-0 asks for 2 CPUs and 0 GPUs; this cluster has 4 CPUs, of which 1 are free"
    with pytest.raises(NoResources, match=message):
        await cluster.spawn("second", FACTORY, cpus=2)
    os.kill(first.pid or 0, signal.SIGKILL)
    await asyncio.wait_for(first.wait_ended(), 30)
    assert (await cluster.spawn("second", FACTORY, cpus=4)).alive


def test_gpus_are_whole_or_parts_of_one_and_parts_fill_one_first() -> None:
    resources = Resources(4, 3)
    half, third, whole = (resources.take("worker", 0, gpus) for gpus in (0.5, 0.5, 2))
    assert [share.devices for share in (half, third, whole)] == [(0,), (0,), (1, 2)]
    with pytest.raises(NoResources, match=r"3 GPUs, of which 0 are free"):
        resources.take("worker", 0, 0.1)
    resources.give_back(half)
    with pytest.raises(NoResources, match=r"3 GPUs, of which 0\.5 are free"):
        resources.take("worker", 0, 1)
    assert resources.take("worker", 4, 0).devices == ()


def test_what_is_reserved_is_counted_out_for_all_or_for_none_and_given_to_each_again() -> None:
    resources = Resources(4, 2)
    workers = ResourceRequest(kind="rollout", count=2, cpus=1, gpus=0.5)
    message = (
        r"\(2 rollout of 1 CPUs and 0\.5 GPUs and 2 learner of 1 CPUs and 1 GPUs\) ask for 4 CPUs and 3 GPUs "
        r"together; this cluster has 4 CPUs, of which 4 are free, and 2 GPUs, of which 2 are free, so none was started"
    )
    with pytest.raises(NoResources, match=message):
        resources.reserve([workers, ResourceRequest(kind="learner", count=2, cpus=1, gpus=1)])
    resources.reserve([workers, ResourceRequest(kind="learner", count=1, cpus=1, gpus=1)])
    for _ in range(2):  # a worker that is started again
        share = resources.take("rollout-1", 1, 0.5)
        resources.give_back(share)
        with pytest.raises(NoResources, match=r"4 CPUs, of which 1 are free, and 2 GPUs, of which 0 are free"):
            resources.take("other-0", 2, 0)
    names = ("rollout-0", "rollout-1", "learner-0")
    assert [resources.take(name, 1, 0).devices for name in names] == [(0,), (0,), (1,)]


def test_a_worker_sees_those_of_the_drivers_devices_that_it_holds() -> None:
    share = Share(cpus=1, gpu_share=1, devices=(0, 2))
    assert visible_devices(share, {}) == "0,2"
    assert visible_devices(share, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}) == "4,6"
    assert visible_devices(Share(cpus=1, gpu_share=1, devices=()), {"CUDA_VISIBLE_DEVICES": "4"}) == ""


async def test_an_object_that_is_used_is_removed_after_its_last_use() -> None:
    files = ObjectFiles()
    assert files.directory.stat().st_mode & 0o777 == 0o700
    ref = await files.put(b"content")
    path = files.directory / ref.key
    with files.using([ref]), files.using([ref, ref]):
        files.free(ref)
        assert path.read_bytes() == b"content"
    assert not path.exists()
    with pytest.raises(ClusterError, match=r"has been freed"), files.using([ref]):
        pass
    with pytest.raises(ClusterError, match=r"is of another cluster"), files.using([Ref(key="..", size=0)]):
        pass
    files.close()
    assert not files.directory.exists()
    with pytest.raises(ClusterError, match=r"cannot be written"):
        await files.put(b"late")


def test_text_of_errors_is_bounded_and_can_always_be_encoded() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    errors: list[Exception] = [
        ValueError("x" * 10**6),
        ValueError("\ud800"),
        Unprintable(),
        ExceptionGroup("many", [OSError()]),
    ]
    for error in errors:
        failed = failure(error)
        assert len(failed.traceback) <= 20_000
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(failed), type=Outcome) == failed  # type: ignore[arg-type]
    assert failure(ValueError("why: so")).text == "why: so"
    assert isinstance(failure(KeyError()), FailedCall)
