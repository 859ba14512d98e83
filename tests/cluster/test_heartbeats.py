"""When a heartbeat that came too late says that a worker hangs, and when that the driver stood still."""

import asyncio
import time
from collections.abc import Callable, Sequence

from cluster_cases import until

from mas.cluster import ClusterOptions
from mas.cluster.handle import Handle, WorkerLink
from mas.cluster.records import Done, HeartbeatReply, Outcome, Ref, WorkerSpec

HUNG_S = 0.2


class Heart(WorkerLink):
    """`stands_still`: while the first heartbeat is asked for, this process does nothing for a second, and the answer
    comes right after it; all others come at once. Otherwise none ever comes. `start_s`: how long it does nothing while
    the worker starts."""

    def __init__(self, *, stands_still: bool, start_s: float = 0.0) -> None:
        self.stands_still, self.start_s, self.asked = stands_still, start_s, 0

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        if self.start_s:
            time.sleep(self.start_s)  # noqa: ASYNC251 - as what starts vLLM in this process does
            await asyncio.sleep(0.001)
        return Done(b"")

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        return Done(payload)

    async def ping(self) -> HeartbeatReply:
        self.asked += 1
        if not self.stands_still:
            await asyncio.Event().wait()
        if self.asked == 1:
            time.sleep(HUNG_S + 1.0)  # noqa: ASYNC251 - as what starts vLLM in this process does
            await asyncio.sleep(0.001)
        return HeartbeatReply(rss_bytes=7)

    async def stop(self) -> None:
        """Nothing."""

    async def kill(self) -> None:
        """Nothing."""


def handle_of(link: Heart) -> Handle:
    spec = WorkerSpec(kind="worker", factory="x:y", arguments=b"", cpus=1, gpus=0, threads=1)
    return Handle("worker-0", spec, link, ClusterOptions(cpus=1, heartbeat_s=0.01, hung_s=HUNG_S, start_s=1.0), 0)


async def test_a_driver_that_stood_still_asks_a_worker_again_before_it_counts_as_hung() -> None:
    link = Heart(stands_still=True)
    handle = handle_of(link)
    await handle.start()
    assert await until(lambda: link.asked >= 3, 30)
    assert handle.alive
    assert handle.member().rss_bytes == 7
    await handle.close()


async def test_a_driver_that_stood_still_reads_the_answer_of_a_start_before_it_counts_as_expired() -> None:
    handle = handle_of(Heart(stands_still=True, start_s=1.8))
    await handle.start()
    assert handle.alive
    await handle.close()


async def test_a_worker_that_does_not_answer_in_time_hangs() -> None:
    handle = handle_of(Heart(stands_still=False))
    await handle.start()
    assert "it hangs, and is killed" in await asyncio.wait_for(handle.wait_ended(), 30)
    await handle.close()
