"""A process whose end took too long, as when Ray is slow, is ended later: by the next start, or by closing."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from mas.cluster import Cluster, ClusterOptions, Ref, ResourceRequest
from mas.cluster.handle import WorkerLink
from mas.cluster.records import Done, HeartbeatReply, Outcome, WorkerSpec
from mas.core.errors import CallExpired


class SlowLink(WorkerLink):
    """A process that runs from `start` to `kill`, which takes so many turns; its first `expiring` calls expire."""

    def __init__(self, *, hangs: bool = False, expiring: int = 0, turns: int = 1) -> None:
        self.hangs, self.expiring, self.turns, self.runs = hangs, expiring, turns, False

    async def start(self, lost: Callable[[str], None]) -> Outcome:
        self.runs = True
        if self.hangs:
            await asyncio.Event().wait()
        return Done(b"")

    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        return Done(payload)

    async def ping(self) -> HeartbeatReply:
        return HeartbeatReply(rss_bytes=None)

    async def stop(self) -> None:
        """It goes on until it is killed."""

    async def kill(self) -> None:
        for _ in range(self.turns):
            await asyncio.sleep(0)
        self.expiring -= 1
        if self.expiring >= 0:
            raise CallExpired("Ray: killing took longer than start_s=0.05")
        self.runs = False


class LinkedCluster(Cluster):
    """Starts workers over these links, in order."""

    def __init__(self, *links: SlowLink) -> None:
        super().__init__(ClusterOptions(cpus=1, start_s=0.05), Path("logs"))
        self.links, self.left = links, iter(links)
        self.running_at_close = list[bool]()

    async def put(self, content: bytes) -> Ref:
        raise NotImplementedError

    async def free(self, ref: Ref) -> None:
        raise NotImplementedError

    async def _open(self) -> None:
        """Nothing."""

    async def _close(self) -> None:
        self.running_at_close = [link.runs for link in self.links]

    async def _reserve(self, requests: Sequence[ResourceRequest]) -> None:
        raise NotImplementedError

    def _link(self, name: str, spec: WorkerSpec) -> WorkerLink:
        return next(self.left)


async def test_a_fresh_process_that_hangs_and_is_not_killed_in_time_is_killed_by_the_next_start() -> None:
    """It may hold what the next one needs, and computes beside it."""
    old, hanging, fresh = SlowLink(), SlowLink(hangs=True, expiring=1), SlowLink()
    async with LinkedCluster(old, hanging, fresh) as cluster:
        handle = await cluster.spawn("worker", "a:make")
        with pytest.raises(CallExpired, match=r"no answer to the factory"):
            await cluster.respawn(handle)
        assert (old.runs, hanging.runs) == (False, True)
        assert (await cluster.respawn(handle)).alive
        assert (old.runs, hanging.runs, fresh.runs) == (False, False, True)


@pytest.mark.parametrize("expiring", [(1, 0), (0, 1)])
async def test_what_a_respawn_left_is_killed_when_the_cluster_closes(expiring: tuple[int, int]) -> None:
    """The kill of the old process expired, or the start and the kill of the fresh one."""
    old, fresh = SlowLink(expiring=expiring[0]), SlowLink(hangs=True, expiring=expiring[1])
    async with LinkedCluster(old, fresh) as cluster:
        handle = await cluster.spawn("worker", "a:make")
        with pytest.raises(CallExpired):
            await cluster.respawn(handle)
        assert sum([old.runs, fresh.runs]) == 1
    assert cluster.running_at_close == [False, False]


async def test_closing_ends_all_others_before_it_says_that_one_could_not_be_killed() -> None:
    stuck, other = SlowLink(expiring=9), SlowLink(turns=9)
    cluster = LinkedCluster(stuck, other)
    await cluster.__aenter__()
    for _ in range(2):
        await cluster.spawn("worker", "a:make")
    with pytest.raises(CallExpired, match=r"killing took longer"):
        await cluster.close()
    assert cluster.running_at_close == [True, False]
