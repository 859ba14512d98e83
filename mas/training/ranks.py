"""Learner ranks: processes that compute shares of every update, as the process that trains sees them.

A share is whole groups of rows. Every rank, this process first, computes the gradients of its share; they are added up
by one all-reduce, and every rank makes the same optimiser step on its own copy. Nothing of a rank needs to be kept: one
that is lost is started again, gets the state of this process, and the update that was not yet made is made again.
"""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import msgspec
import safetensors.torch
from torch import Tensor

from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.config.options import WorkerOptions
from mas.core.concurrency import together
from mas.core.errors import CallFailed, ClusterError, TrainingError, WorkerLost
from mas.training.batch import TrainRow
from mas.training.learner import Learner, Logprobs, Reading
from mas.training.metric_accumulator import MetricAccumulator
from mas.training.optimiser import kept_tensors
from mas.training.rank_group import (
    ApplyOrder,
    JoinOrder,
    RankGroup,
    ReadOrder,
    ShareOrder,
    ShareReply,
    StateOrder,
    TokenMetrics,
    deal,
    listen,
)

_LOSSES = 3
"""How often the work of one update may be lost before training ends."""
_MEET_S = 30.0
"""Ranks that have started meet within so many seconds; one that is lost meanwhile keeps the others for as long."""
_SAME = 1e-4
"""Norms of the same gradients may differ by so much, as a share, between two processors."""
T = TypeVar("T")


class LearnerRanks:
    """Satisfies `mas.training.learner.Ranks`. Made by `start_ranks`; its methods are called in the learner's thread,
    while the event loop of the cluster runs in another one.

    Attributes:
        restarts: how often a rank was started again.
    """

    def __init__(self, cluster: Cluster, handles: Sequence[Handle], loop: asyncio.AbstractEventLoop) -> None:
        self._cluster, self._handles, self._loop = cluster, [*handles], loop
        self._group: RankGroup | None = None
        self._holding: tuple[Learner, int] | None = None
        self.restarts = 0

    @property
    def count(self) -> int:
        """How many processes share an update, this one included."""
        return len(self._handles) + 1

    def metrics(self) -> Mapping[str, int]:
        """How many there are, and how often one was started again so far."""
        return {"count": self.count, "restarts": self.restarts}

    def accumulate(
        self,
        learner: Learner,
        rows: Sequence[TrainRow],
        tallies: Mapping[str, MetricAccumulator],
        start: Logprobs | None,
    ) -> None:
        """See `Ranks`.

        Raises:
            TrainingError: ranks were lost again and again, or one failed.
        """
        shares = deal(rows, self.count)
        touched = sorted({row.adapter for row in rows})
        orders = [_encoded(_share(share, touched, start)) for share in shares[1:]]

        def attempt(group: RankGroup) -> bool:
            calls = self._call("accumulate", orders)
            found: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
            try:
                learner.accumulate(shares[0], found, start)
                is_whole = group.add_up(learner.gradients({row.adapter for row in shares[0]}, touched))
            except BaseException:  # whatever it is, the others must not wait for this process
                self._leave()
                raise
            if not is_whole:
                self._leave()
            replies = [msgspec.msgpack.decode(reply, type=ShareReply) for reply in self._replies(calls)]
            if not is_whole or len(replies) < len(calls) or not all(reply.is_whole for reply in replies):
                return False
            for reply, share in zip(replies, shares[1:], strict=True):
                _add(found, reply.metrics, share, learner)
            for name, one in found.items():
                tallies[name].merge(one)
            return True

        self._until_whole(learner, "an update", lambda group: True if attempt(group) else None)

    def apply(self, learner: Learner, touched: Collection[str], norms: Mapping[str, float]) -> None:
        """See `Ranks`.

        Raises:
            TrainingError: a rank failed, or has other gradients than this process.
        """
        lr = float(next(iter(learner.optimisers.values())).param_groups[0]["lr"])
        order = _encoded(ApplyOrder(touched=sorted(touched), lr=lr))
        calls = self._call("apply", [order] * len(self._handles))
        replies = self._replies(calls)
        for handle, reply in zip(self._handles, replies, strict=True) if len(replies) == len(calls) else ():
            found = msgspec.msgpack.decode(reply, type=dict[str, float])
            wrong = [name for name, norm in norms.items() if not math.isclose(norm, found[name], rel_tol=_SAME)]
            if wrong:
                raise TrainingError(
                    f"{handle.name} has another gradient of adapter {wrong[0]!r} than the process that trains: its "
                    f"norm is {found[wrong[0]]:.6g}, not {norms[wrong[0]]:.6g}"
                )

    def read(self, learner: Learner, rows: Sequence[TrainRow], what: Reading) -> Logprobs:
        """See `Ranks`.

        Raises:
            TrainingError: ranks were lost again and again, or one failed.
        """
        shares = deal(rows, self.count) if rows else [[] for _ in range(self.count)]
        orders = [_encoded(ReadOrder(rows=share, what=what)) for share in shares[1:]]

        def attempt(group: RankGroup) -> Logprobs | None:
            calls = self._call("read", orders)
            found = dict(learner.read(shares[0], what))
            replies = self._replies(calls)
            if len(replies) < len(calls):
                return None
            for reply, share in zip(replies, shares[1:], strict=True):
                values = msgspec.msgpack.decode(reply, type=list[list[float]])
                found |= {id(row.turn): own for row, own in zip(share, values, strict=True)}
            return found

        return self._until_whole(learner, "log-probabilities", attempt)

    def _until_whole(self, learner: Learner, what: str, attempt: Callable[[RankGroup], T | None]) -> T:
        for _ in range(_LOSSES):
            group = self._ready(learner)
            if group is not None and (found := attempt(group)) is not None:
                return found
        raise TrainingError(
            f"learner ranks were lost {_LOSSES} times over {what}: their output is in {self._cluster.logs}"
        )

    def _ready(self, learner: Learner) -> RankGroup | None:
        """The group, with ranks that hold the learner's state; None: a rank was lost meanwhile."""
        if not all(handle.alive for handle in self._handles):
            self._leave()
        if self._group is None and not self._meet():
            return None
        if self._holding != (learner, learner.changes) and not self._give_state(learner):
            return None
        return self._group

    def _leave(self) -> None:
        """Leave the group, which ends it for all, and take it that no rank holds what it should."""
        self._group = self._holding = None

    def _meet(self) -> bool:
        """Start again what was lost, and make a group of all."""
        for number, handle in enumerate(self._handles):
            if not handle.alive:
                self.restarts += 1
                try:
                    self._handles[number] = self._wait(self._cluster.respawn(handle))
                except WorkerLost:
                    return False
        listening = listen(self._cluster.host)
        host, port = listening.getsockname()[:2]
        orders = [
            JoinOrder(host=host, port=port, rank=rank, world=self.count, limit_s=_MEET_S) for rank in range(self.count)
        ]
        calls = self._call("join", [_encoded(order) for order in orders[1:]])
        try:
            self._group = RankGroup(orders[0], listening)
        except ClusterError:
            self._replies(calls)
            return False
        return len(self._replies(calls)) == len(calls)

    def _give_state(self, learner: Learner) -> bool:
        order = StateOrder(
            loss=learner.loss.model_dump_json(),
            options=learner.options.model_dump_json(),
            is_own_surrogate=learner.surrogate is not None,
        )
        ref = self._wait(self._cluster.put(safetensors.torch.save(state_of(learner))))
        try:
            calls = self._call("hold", [_encoded(order)] * len(self._handles), ref)
            is_held = len(self._replies(calls)) == len(calls)
        finally:
            self._wait(self._cluster.free(ref))
        if is_held:
            self._holding = (learner, learner.changes)
        return is_held

    def _call(self, method: str, payloads: Sequence[bytes], ref: Ref | None = None) -> list[Future[bytes]]:
        refs = () if ref is None else (ref,)
        return [
            asyncio.run_coroutine_threadsafe(handle.call(method, payload, refs=refs, timeout_s=None), self._loop)
            for handle, payload in zip(self._handles, payloads, strict=True)
        ]

    def _replies(self, calls: Sequence[Future[bytes]]) -> list[bytes]:
        """Of all ranks, or fewer if ranks were lost; then the group is left.

        Raises:
            TrainingError: a rank failed.
        """
        found, failed = [], ""
        for call, handle in zip(calls, self._handles, strict=True):
            try:
                found.append(call.result())
            except WorkerLost:
                self._leave()
            except CallFailed as error:
                self._leave()
                failed = failed or f"{handle.name} failed: {error}"
        if failed:
            raise TrainingError(failed)
        return found

    def _wait(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


def state_of(learner: Learner) -> dict[str, Tensor]:
    """All that its next update depends on, as tensors by name."""
    adapters = {name: weights.parameters() for name, weights in learner.adapters.items()}
    found = {f"adapters/{name}": one for name, one in kept_tensors(adapters, learner.optimisers).items()}
    for name, weights in learner.references.items():
        found |= {f"references/{name}/{at}": one.contiguous() for at, one in enumerate(weights.parameters())}
    return found


async def start_ranks(
    cluster: Cluster, options: WorkerOptions, factory: str, arguments: bytes, *, threads: int
) -> LearnerRanks:
    """Start the processes that compute beside this one.

    Args:
        factory, arguments: see `Cluster.spawn`; the rank has `join`, `hold`, `accumulate`, `apply` and `read`.

    Raises:
        ClusterError: they cannot be started.
    """
    spawns = [
        cluster.spawn(
            "learner", factory, arguments, cpus=options.learner_cpus, gpus=options.learner_gpus, threads=threads
        )
        for _ in range(options.learners - 1)
    ]
    return LearnerRanks(cluster, await together(spawns, "spawn"), asyncio.get_running_loop())


def _share(rows: Sequence[TrainRow], touched: list[str], start: Logprobs | None) -> ShareOrder:
    known = [] if start is None else [list(start[id(row.turn)]) for row in rows]
    return ShareOrder(rows=list(rows), touched=touched, start=known)


def _add(
    found: Mapping[str, MetricAccumulator],
    metrics: Mapping[str, TokenMetrics],
    share: Sequence[TrainRow],
    learner: Learner,
) -> None:
    for name, one in metrics.items():
        values = {key: value.to(learner.base.bank.device) for key, value in safetensors.torch.load(one.values).items()}
        found[name].add(values, one.rows, slice(None), [share[row].turn for row in one.row_of])


def _encoded(order: object) -> bytes:
    return msgspec.msgpack.encode(order)
