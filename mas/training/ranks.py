"""Learner ranks: processes that compute shares of every update, as the process that trains sees them.

A share is whole groups of rows. Every rank, this process first, computes the gradients of its share; they are added up
by one all-reduce, and every rank makes the same optimiser step on its own copy. Nothing of a rank needs to be kept: one
that is lost is started again, gets the state of this process, and the update that was not yet made is made again.

Where the base is sharded (`mas.serving.sharded_base`), ranks gather its blocks from each other within shares and reads
(`mas.training.rank_group`). When this process computes with the base in another way, such as for a critic or the
canary, the others serve it their parts until they get their next order.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec
import safetensors.torch
from torch import Tensor

from mas.algorithms.parts.losses.tokens import LossOptions
from mas.cluster.contract import Cluster
from mas.cluster.handle import Handle
from mas.cluster.records import Ref
from mas.config.options import LearnerOptions, WorkerOptions
from mas.core.concurrency import together
from mas.core.errors import CallExpired, ClusterError, TrainingError, WorkerLost
from mas.serving.model import BaseModel
from mas.serving.sharded_base import ShardedBlocks
from mas.training.batch import TrainRow
from mas.training.learner import Learner, Logprobs, Reading
from mas.training.loop_calls import LoopCalls, any_failed
from mas.training.optimiser import kept_tensors
from mas.training.rank_group import (
    ApplyOrder,
    BlockRounds,
    JoinOrder,
    RankGroup,
    RankSetup,
    ReadOrder,
    ShareOrder,
    ShareReply,
    StateOrder,
    TokenMetrics,
    deal,
    gathering,
    listen,
    weights_digest,
)
from mas.training.step_metrics import MetricAccumulator

_LOSSES = 3
"""How often the work of one update may be lost before training ends."""
_MEET_S = 30.0
"""Seconds in which ranks that run must form a group. If one is lost meanwhile, the others wait for this long."""
_GRACE_S = 5.0
"""How long at least ranks that live get to notice that one is lost, before they are killed."""
T = TypeVar("T")
_Held = tuple[Learner, int, int, LossOptions, LearnerOptions]


class LearnerRanks:
    """Satisfies `mas.training.learner.Ranks` and `mas.serving.sharded_base.BlockSource`. Made by `start_ranks`; its
    methods are called in the learner's thread, while the event loop of the cluster runs in another one.

    Args:
        blocks: what this process holds of a sharded base, which is gathered from the ranks; None: the base is whole.

    Attributes:
        restarts: how often a rank was started again.
    """

    def __init__(
        self,
        cluster: Cluster,
        handles: Sequence[Handle],
        loop: asyncio.AbstractEventLoop,
        blocks: ShardedBlocks | None = None,
    ) -> None:
        self._cluster, self._handles, self._loop = cluster, [*handles], LoopCalls(cluster, loop)
        self._blocks = blocks
        self._serving: tuple[BlockRounds, Sequence[Future[bytes]]] | None = None
        self._group: RankGroup | None = None
        self._holding: _Held | None = None
        self._reason = ""
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

        def attempt(group: RankGroup) -> dict[str, MetricAccumulator] | None:
            with self._calling("accumulate", orders) as calls:
                found: dict[str, MetricAccumulator] = defaultdict(MetricAccumulator)
                weights, is_hopeless, began = weights_digest(learner.adapters), any_failed(calls), time.monotonic()
                try:
                    with gathering(self._blocks, group, is_hopeless):
                        learner.accumulate(shares[0], found, start)
                    total = partial(group.add_up, is_hopeless=is_hopeless)
                    is_whole = learner.add_up({row.adapter for row in shares[0]}, touched, total)
                except WorkerLost:
                    is_whole = False
                if not is_whole:
                    self._part(calls, time.monotonic() - began)
                replies = [msgspec.msgpack.decode(reply, type=ShareReply) for reply in self._replies(calls)]
            if not is_whole or len(replies) < len(calls) or not all(reply.is_whole for reply in replies):
                self._give_up("a learner rank was lost in an update")
                return None
            if any(reply.weights != weights for reply in replies):
                self._give_up("a learner rank had other weights than the process that trains")
                return None
            for reply, share in zip(replies, shares[1:], strict=True):
                _add(found, reply.metrics, share, learner)
            return found

        for name, one in self._until_whole(learner, "an update", attempt).items():
            tallies[name].merge(one)

    def apply(self, learner: Learner, touched: Collection[str]) -> None:
        """See `Ranks`.

        Raises:
            TrainingError: a rank failed.
        """
        lr = float(next(iter(learner.optimisers.values())).param_groups[0]["lr"])
        order = _encoded(ApplyOrder(touched=sorted(touched), lr=lr))
        self._end_serving()
        with self._calling("apply", [order] * len(self._handles)) as calls:
            if len(self._replies(calls)) == len(calls):
                self._holding = _held(learner)

    def read(self, learner: Learner, rows: Sequence[TrainRow], what: Reading) -> Logprobs:
        """See `Ranks`.

        Raises:
            TrainingError: ranks were lost again and again, or one failed.
        """
        if not rows:
            return {}
        shares = deal(rows, self.count)
        orders = [_encoded(ReadOrder(rows=share, what=what)) for share in shares[1:]]

        def attempt(group: RankGroup) -> Logprobs | None:
            found: dict[int, Sequence[float]] | None = None
            with self._calling("read", orders) as calls:
                began = time.monotonic()
                try:
                    with gathering(self._blocks, group, any_failed(calls)):
                        found = dict(learner.read(shares[0], what))
                except WorkerLost:
                    self._part(calls, time.monotonic() - began)
                replies = self._replies(calls)
            if found is None or len(replies) < len(calls):
                return None
            if not all(replies):
                self._give_up("a learner rank was lost in a reading")
                return None
            for reply, share in zip(replies, shares[1:], strict=True):
                values = msgspec.msgpack.decode(reply, type=list[list[float]])
                found |= {id(row.turn): own for row, own in zip(share, values, strict=True)}
            return found

        return self._until_whole(learner, "log-probabilities", attempt)

    def fetch(self, block: int, whole: Tensor) -> None:
        """See `BlockSource`. Ranks that are lost meanwhile are started again, and the block is gathered again.

        Raises:
            TrainingError: ranks were lost again and again, or one failed; or this is the thread of the event loop,
                which would wait for itself.
        """
        if self._loop.is_loop_thread():
            raise TrainingError("a sharded base computes in the learner's thread alone")
        for _ in range(_LOSSES):
            if (serving := self._served()) is None:
                continue
            try:
                serving[0].fetch(block, whole)
            except WorkerLost:
                self._part(serving[1])
                self._replies(serving[1])
            else:
                return
        raise self._lost_too_often("a block of the base")

    def _served(self) -> tuple[BlockRounds, Sequence[Future[bytes]]] | None:
        """The rounds in which ranks serve their parts, and their calls; None: a rank was lost meanwhile."""
        if self._serving is None and self._blocks is not None and (group := self._joined()) is not None:
            calls = [self._loop.call(handle, "serve", b"") for handle in self._handles]
            self._serving = BlockRounds(group, self._blocks, any_failed(calls)), calls
        return self._serving

    def _end_serving(self) -> None:
        """End the calls in which ranks serve their parts.

        Raises:
            TrainingError: a rank failed.
        """
        if self._serving is None:
            return
        (rounds, calls), self._serving = self._serving, None
        try:
            rounds.finish()
        except WorkerLost:
            self._part(calls)
        self._replies(calls)

    def end(self) -> None:
        """Leave the group: nothing more is asked of the ranks. Waits for nothing."""
        self._give_up("training has ended")

    def _until_whole(self, learner: Learner, what: str, attempt: Callable[[RankGroup], T | None]) -> T:
        for _ in range(_LOSSES):
            group = self._ready(learner)
            if group is not None and (found := attempt(group)) is not None:
                return found
        raise self._lost_too_often(what)

    def _lost_too_often(self, what: str) -> TrainingError:
        return TrainingError(
            f"learner ranks were lost {_LOSSES} times over {what}: {self._reason}; their output is in "
            f"{self._cluster.logs}"
        )

    def _joined(self) -> RankGroup | None:
        """The group; None: a rank was lost meanwhile."""
        if not all(handle.alive for handle in self._handles):
            self._give_up("a learner rank was lost")
        if self._group is None:
            self._meet()
        return self._group

    def _ready(self, learner: Learner) -> RankGroup | None:
        """The group, with ranks that hold the learner's state; None: a rank was lost meanwhile."""
        self._end_serving()
        if self._joined() is None:
            return None
        if self._holding != _held(learner) and not self._give_state(learner):
            return None
        return self._group

    def _give_up(self, reason: str) -> None:
        """Leave the group, and take it that no rank holds what it should."""
        if self._group is not None:
            self._group.close()
        self._group = self._holding = self._serving = None
        self._reason = reason

    def _part(self, calls: Sequence[Future[bytes]], worked_s: float = 0.0) -> None:
        """Leave a group in which a member is lost; ranks that do not notice it are killed.

        Args:
            worked_s: how long this process took for its share; others may still be at theirs for as long.
        """
        self._give_up("a learner rank was lost in an update")
        ends = time.monotonic() + max(_GRACE_S, worked_s)
        for call, handle in zip(calls, self._handles, strict=True):
            if not wait([call], timeout=max(ends - time.monotonic(), 0)).done:
                self._loop.run(handle.kill())

    def _meet(self) -> None:
        """Start again what was lost, and make a group of all, unless a rank is lost meanwhile."""
        for number, handle in enumerate(self._handles):
            if not handle.alive and not self._restart(number, handle):
                return
        listening = listen(self._cluster.host)
        host, port = listening.getsockname()[:2]
        orders = [
            JoinOrder(host=host, port=port, rank=rank, world=self.count, limit_s=_MEET_S) for rank in range(self.count)
        ]
        with self._calling("join", [_encoded(order) for order in orders[1:]]) as calls:
            try:
                self._group = RankGroup(orders[0], listening)
                for call in calls:
                    self._loop.result(call)
            except ClusterError as error:
                self._give_up(str(error))

    def _restart(self, number: int, handle: Handle) -> bool:
        self.restarts += 1
        try:
            self._handles[number] = self._loop.run(self._cluster.respawn(handle))
        except (WorkerLost, CallExpired) as error:  # lost once more, or frozen while it started
            self._give_up(str(error))
            return False
        except ClusterError as error:
            raise TrainingError(f"{handle.name} cannot be started again: {error}") from error
        return True

    def _give_state(self, learner: Learner) -> bool:
        order = StateOrder(
            loss=learner.loss.model_dump_json(),
            options=learner.options.model_dump_json(),
            is_own_surrogate=learner.surrogate is not None,
        )
        ref = self._loop.run(self._cluster.put(safetensors.torch.save(state_of(learner))))
        try:
            with self._calling("hold", [_encoded(order)] * len(self._handles), ref) as calls:
                is_held = len(self._replies(calls)) == len(calls)
        finally:
            self._loop.run(self._cluster.free(ref))
        if is_held:
            self._holding = _held(learner)
        return is_held

    @contextmanager
    def _calling(self, method: str, payloads: Sequence[bytes], ref: Ref | None = None) -> Iterator[list[Future[bytes]]]:
        """Calls of all ranks. If the block raises, the group is left, so that none waits for this process."""
        calls = [
            self._loop.call(handle, method, payload, () if ref is None else (ref,))
            for handle, payload in zip(self._handles, payloads, strict=True)
        ]
        try:
            yield calls
        except BaseException:  # also if interrupted: ranks must not wait for this process
            self._give_up("the process that trains failed")
            raise

    def _replies(self, calls: Sequence[Future[bytes]]) -> list[bytes]:
        """Of all ranks, or fewer if ranks were lost; then the group is left.

        Raises:
            TrainingError: a rank failed.
        """
        found, failed = [], ""
        for call, handle in zip(calls, self._handles, strict=True):
            try:
                found.append(self._loop.result(call))
            except WorkerLost as error:
                self._give_up(str(error))
            except ClusterError as error:
                self._give_up(str(error))
                failed = failed or f"{handle.name} failed: {error}"
        if failed:
            raise TrainingError(failed)
        return found


def _held(learner: Learner) -> _Held:
    """What a rank's copy of the learner depends on; equal: nothing was changed since."""
    return learner, learner.changes, learner.updates, learner.loss, learner.options


def state_of(learner: Learner) -> dict[str, Tensor]:
    """All that its next update depends on, as tensors by name."""
    kept = kept_tensors(learner.adapter_tensors(), learner.optimisers)
    found = {f"adapters/{name}": one for name, one in kept.items()}
    for name, weights in learner.references.items():
        found |= {f"references/{name}/{at}": one.contiguous() for at, one in enumerate(weights.parameters())}
    return found


async def start_ranks(
    cluster: Cluster, options: WorkerOptions, factory: str, arguments: bytes, *, base: BaseModel
) -> LearnerRanks:
    """Start the processes that compute beside this one.

    Args:
        factory: see `Cluster.spawn`; it gets a `RankSetup` with these arguments. The rank has `join`, `hold`,
            `accumulate`, `apply`, `read` and `serve`.
        base: of this process. If it is sharded, its blocks are gathered from the ranks from now on.

    Raises:
        ClusterError: they cannot be started.
    """
    spawns = [
        cluster.spawn(
            "learner",
            factory,
            _encoded(RankSetup(rank=rank, setup=arguments)),
            cpus=options.learner_cpus,
            gpus=options.learner_gpus,
            threads=base.options.threads,
        )
        for rank in range(1, options.learners)
    ]
    ranks = LearnerRanks(cluster, await together(spawns, "spawn"), asyncio.get_running_loop(), base.blocks)
    if base.blocks is not None:
        base.blocks.connect(ranks)
    return ranks


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
